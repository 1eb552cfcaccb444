package adaptertest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"vreplica.dev/scheduler/adapter"
)

const (
	within  = 10 * time.Second
	bodyMax = 1 << 20
)

// Acknowledgement is what a pod has said. Its lists have keys of shares.
type Acknowledgement struct {
	UID        string             `json:"uid"`
	Generation int64              `json:"generation"`
	Serving    []string           `json:"serving"`
	Busy       []string           `json:"busy"`
	Draining   []string           `json:"draining"`
	Drained    []string           `json:"drained"`
	Load       map[string]float64 `json:"load"`
}

// Pod is an adapter pod. Service.Pod makes one. What it is told is sent at once, as a new generation.
type Pod struct {
	// Name is its namespace/name.
	Name string
	// URL is for adapter.Config.URLs of the adapter that is this pod's.
	URL string

	service *Service
	uid     string

	// The rest is guarded by service.mu.
	generation int64
	shares     map[string]adapter.Told
	said       []Acknowledgement
	load       map[string]float64
}

// Tell gives the pod a share, or changes one. A Weight of 0 is 1.
func (p *Pod) Tell(key string, told adapter.Told) {
	if told.Weight == 0 {
		told.Weight = 1
	}
	p.change(func() { p.shares[key] = told })
}

// Remove takes a share away, drained or not.
func (p *Pod) Remove(key string) { p.change(func() { delete(p.shares, key) }) }

func (p *Pod) change(what func()) {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	what()
	p.generation++
	p.service.changed(p)
}

// Document returns the assignment as the service sends it, as for the file that the kubelet writes.
func (p *Pod) Document() []byte {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	return p.document()
}

// document is the assignment. The caller holds service.mu.
func (p *Pod) document() []byte {
	told := map[string]any{"generation": p.generation, "pod": p.Name, "uid": p.uid, "shares": p.shares}
	if p.service.lease > 0 {
		told["leaseSeconds"] = p.service.lease.Seconds()
	}
	document, _ := json.Marshal(told)
	return document
}

// Send sends a line to the pod's streams: an old assignment, for example, or none at all.
func (p *Pod) Send(line string) {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	for each := range p.service.streams {
		if each.pod == p {
			p.service.sendTo(each, []byte(line))
		}
	}
}

// Acknowledgements returns what the pod has said, in order. What was refused is not there.
func (p *Pod) Acknowledgements() []Acknowledgement {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	return slices.Clone(p.said)
}

// Load returns the load that was reported last for each share.
func (p *Pod) Load() map[string]float64 {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	return maps.Clone(p.load)
}

func (p *Pod) told(key string) adapter.Told {
	p.service.mu.Lock()
	defer p.service.mu.Unlock()
	return p.shares[key]
}

// Serving waits until the pod says that it serves a share as it is told. Like each wait here it ends the test
// after 10 s, and must be called from the test's goroutine.
func (p *Pod) Serving(key string) {
	p.service.t.Helper()
	p.Until("serving "+key, func(said Acknowledgement) bool {
		return slices.Contains(said.Serving, key) && !slices.Contains(said.Busy, key)
	})
}

// Ready waits until the pod has prepared a share.
func (p *Pod) Ready(key string) {
	p.service.t.Helper()
	p.Until("ready for "+key, func(said Acknowledgement) bool {
		return !slices.Contains(slices.Concat(said.Serving, said.Busy, said.Draining, said.Drained), key)
	})
}

// Drained waits until the pod has let a share go.
func (p *Pod) Drained(key string) {
	p.service.t.Helper()
	p.Until("drained "+key, func(said Acknowledgement) bool { return slices.Contains(said.Drained, key) })
}

// Until waits until holds is true of the last acknowledgement, and that is of the newest generation.
func (p *Pod) Until(what string, holds func(Acknowledgement) bool) {
	p.service.t.Helper()
	limit := time.After(within)
	for {
		p.service.mu.Lock()
		heard, generation := p.service.heard, p.generation
		var last Acknowledgement
		if len(p.said) > 0 {
			last = p.said[len(p.said)-1]
		}
		p.service.mu.Unlock()
		if last.Generation == generation && holds(last) {
			return
		}
		select {
		case <-heard:
		case <-limit:
			p.service.t.Fatalf("%s has not said within %s: %s; generation %d, said last: %+v",
				p.Name, within, what, generation, last)
		}
	}
}

func (s *Service) acknowledge(reply http.ResponseWriter, request *http.Request) {
	pod := s.known(reply, request)
	if pod == nil {
		return
	}
	content, err := io.ReadAll(http.MaxBytesReader(reply, request.Body, bodyMax))
	var said Acknowledgement
	if err == nil {
		err = json.Unmarshal(content, &said)
	}
	if err != nil {
		s.t.Errorf("%s acknowledges %.500q: %v", pod.Name, content, err)
		http.Error(reply, `{"error": "malformed"}`, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case said.UID != pod.uid:
		http.Error(reply, `{"error": "another pod's UID"}`, http.StatusForbidden)
	case said.Generation != pod.generation:
		if said.Generation > pod.generation {
			reply.Header().Set("Retry-After", "1")
		}
		http.Error(reply, fmt.Sprintf(`{"generation": %d}`, pod.generation), http.StatusConflict)
	case !pod.has(said):
		http.Error(reply, `{"error": "unknown shares"}`, http.StatusUnprocessableEntity)
	default:
		pod.said = append(pod.said, said)
		if s.ignoresLoad {
			fmt.Fprintf(reply, `{"generation": %d, "load": "ignored: another replica leads"}`, pod.generation)
		} else {
			maps.Copy(pod.load, said.Load)
			fmt.Fprintf(reply, `{"generation": %d}`, pod.generation)
		}
		close(s.heard)
		s.heard = make(chan struct{})
	}
}

// has tells whether all shares that are named are the pod's. The caller holds service.mu.
func (p *Pod) has(said Acknowledgement) bool {
	named := slices.Concat(said.Serving, said.Busy, said.Draining, said.Drained, slices.Collect(maps.Keys(said.Load)))
	return !slices.ContainsFunc(named, func(key string) bool {
		_, is := p.shares[key]
		return !is
	})
}
