package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// acknowledgement is what there is to say now; nil before the first assignment. The caller holds mu.
func (a *Adapter) acknowledgement() *acknowledgement {
	if a.newest == nil {
		return nil
	}
	said := &acknowledgement{
		UID: a.newest.UID, Generation: a.newest.Generation,
		Serving: []string{}, Busy: []string{}, Draining: []string{}, Drained: []string{},
	}
	for key, told := range a.newest.Shares {
		share := a.live[key]
		for _, list := range a.listsOf(said, told, share) {
			*list = append(*list, key)
		}
	}
	for _, list := range []*[]string{&said.Serving, &said.Busy, &said.Draining, &said.Drained} {
		slices.Sort(*list)
	}
	return said
}

// listsOf returns the lists of said that name a share.
func (a *Adapter) listsOf(said *acknowledgement, told Told, share *Share) []*[]string {
	inService := share != nil && share.at == serving
	switch {
	case told.State == Drain || told.State == Serve && a.leaving:
		if share == nil || share.letGo() {
			return []*[]string{&said.Drained}
		}
		return []*[]string{&said.Draining}
	case share == nil || share.revoked || told.State == Prepare && inService:
		if inService {
			return []*[]string{&said.Draining, &said.Busy}
		}
		return []*[]string{&said.Busy}
	case told.State == Serve && inService && share.served != nil:
		if share.running == noStep && share.served.sameWork(told) {
			return []*[]string{&said.Serving}
		}
		return []*[]string{&said.Serving, &said.Busy}
	case told.State == Prepare && share.at == prepared && share.running == noStep && !a.leaving:
		return nil
	default:
		return []*[]string{&said.Busy}
	}
}

// unsaid tells whether there is something to say that the service has not heard.
func (a *Adapter) unsaid() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !reflect.DeepEqual(a.acknowledgement(), a.said)
}

// speak acknowledges at once after a change, and often enough to hold the lease.
func (a *Adapter) speak(ctx context.Context) {
	wait := retryFirst
	for ctx.Err() == nil {
		if !a.untilThereAreWords(ctx) {
			return
		}
		err := a.speakOnce(ctx)
		if err == nil {
			wait = retryFirst
			sleep(ctx, pace)
			continue
		}
		pause := jitter(wait)
		var answered *refused
		if errors.As(err, &answered) {
			pause = max(pause, min(answered.retryAfter, retryLast))
		}
		a.report("not acknowledged: %v", err)
		sleep(ctx, min(pause, a.partOfLease(6)))
		wait = min(2*wait, retryLast)
	}
}

func (a *Adapter) untilThereAreWords(ctx context.Context) bool {
	spoken := time.Now()
	for {
		a.mu.Lock()
		hasLoad := len(a.load) > 0
		known := a.newest != nil
		a.mu.Unlock()
		every := min(speakEvery, a.partOfLease(3))
		if hasLoad {
			every = min(every, loadEvery)
		}
		if known && (a.unsaid() || time.Since(spoken) >= every) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-a.words:
		case <-time.After(min(every, time.Second)):
		}
	}
}

func (a *Adapter) speakOnce(ctx context.Context) error {
	a.mu.Lock()
	said := a.acknowledgement()
	body, load, skip := *said, a.load, 0
	if a.loadIgnored {
		skip, a.loadIgnored = 1, false
	}
	a.load, body.Load = map[string]float64{}, map[string]float64{}
	for key, value := range load {
		if _, is := a.told(key); is {
			body.Load[key] = value
		}
	}
	a.mu.Unlock()
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	sent := time.Now()
	var told answer
	read := func(reply *http.Response, _ *time.Timer) error {
		return json.NewDecoder(io.LimitReader(reply.Body, documentBytesMax)).Decode(&told)
	}
	limit := min(requestTimeout, a.partOfLease(6))
	err = a.service.ask(ctx, request{http.MethodPost, "/v1/acknowledge", content, limit, read}, skip)
	var answered *refused
	if errors.As(err, &answered) && answered.status == http.StatusConflict && answered.retryAfter == 0 {
		err = json.Unmarshal(answered.body, &told)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || told.Generation > said.Generation {
		for key, value := range load {
			if _, newer := a.load[key]; !newer {
				a.load[key] = value
			}
		}
	}
	if err != nil {
		return err
	}
	a.said = said
	// Only the leader keeps load. The next acknowledgement goes to another replica, until it is the leader.
	a.loadIgnored = strings.HasPrefix(told.Load, "ignored")
	switch {
	case told.Generation > said.Generation:
		if told.Generation > a.named {
			a.named, a.namedAt = told.Generation, time.Now()
		}
	case !a.newsAt.IsZero() && !sent.Before(a.newsAt):
		a.leaseFrom, a.promised = sent, time.Time{}
		a.reviewAll()
	}
	return nil
}

// partOfLease is a day without a lease.
func (a *Adapter) partOfLease(parts int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lease := a.lease(); lease > 0 {
		return lease / time.Duration(parts)
	}
	return 24 * time.Hour
}
