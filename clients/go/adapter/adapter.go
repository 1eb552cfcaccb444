// Package adapter is the contract between vreplica-scheduler and an adapter pod: which shares of which
// vpods are its own, when to begin and when to let go.
//
// docs/adapters.md has the contract, and clients/python the same library in Python.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vreplica.dev/scheduler/internal/replicas"
)

const (
	// Folder is where the pod's template mounts token, ca.crt and assignment.
	Folder = "/var/run/vreplica"

	leasePart   = 0.9 // The rest is for a clock that runs slower than the service's.
	stopsMax    = 3
	retryMax    = 30 * time.Second
	stopTimeout = 10 * time.Second
	watchEvery  = 100 * time.Millisecond
	lastWords   = 2 * time.Second
)

// Callback takes a share to where its name says, and returns when it is there. Its context ends when that is
// no longer wanted, or takes too long. After an error it is called again.
type Callback func(ctx context.Context, share *Share) error

// Config has the callbacks. Only OnServe is needed. Callbacks of one share run one after the other.
type Config struct {
	// OnPrepare gets ready, without serving. OnServe begins to serve and returns; it is called again when the
	// share's Told has changed. OnDrain takes nothing new and finishes what is under way. OnStop ends at once
	// and frees everything; each share for which a callback was called has it in the end.
	OnPrepare, OnServe, OnDrain, OnStop Callback
	// URLs are those of the service, $VREPLICA_URLS by default. A host stands for all its addresses.
	URLs []string
	// Folder has token, ca.crt and assignment: $VREPLICA_DIR by default, or else Folder.
	Folder string
	// Grace is from the end of Run's context to its return: 25 s by default. The pod's
	// terminationGracePeriodSeconds must be more.
	Grace time.Duration
	// Report hears what went wrong; log.Printf by default. It must not call the adapter.
	Report func(format string, arguments ...any)
}

// Adapter follows the assignment of one pod. Use it with Run, once.
type Adapter struct {
	config  Config
	service *service
	shares  sync.WaitGroup
	// words wakes who acknowledges.
	words chan struct{}

	mu     sync.Mutex
	newest *assignment
	live   map[string]*Share
	said   *acknowledgement
	load   map[string]float64
	// loadIgnored: the replica that has answered last does not keep load.
	loadIgnored bool
	// named is the newest generation that an answer has named, at namedAt.
	named   int64
	namedAt time.Time
	// leaseFrom is when the last acknowledgement that renewed the lease was sent. newsAt is when the service
	// sent the first assignment since the lease was lost; zero: none.
	leaseFrom, newsAt time.Time
	// promised is when the lease before runs out, at most a shorter one later: it has been made shorter, and no
	// acknowledgement has renewed it since.
	promised time.Time
	// ours tells whether the service has sent an assignment with newest's UID.
	ours             bool
	leaving, closing bool
}

// New returns an adapter. It fails without OnServe, and for URLs that would show the token to anybody.
func New(config Config) (*Adapter, error) {
	if config.OnServe == nil {
		return nil, errors.New("adapter.Config needs OnServe")
	}
	if len(config.URLs) == 0 {
		for _, each := range strings.Split(os.Getenv("VREPLICA_URLS"), ",") {
			if each = strings.TrimSpace(each); each != "" {
				config.URLs = append(config.URLs, each)
			}
		}
	}
	if len(config.URLs) == 0 {
		return nil, errors.New("adapter.Config needs URLs, or the environment VREPLICA_URLS")
	}
	if config.Folder == "" {
		config.Folder = os.Getenv("VREPLICA_DIR")
	}
	if config.Folder == "" {
		config.Folder = Folder
	}
	if config.Grace == 0 {
		config.Grace = 25 * time.Second
	}
	if config.Report == nil {
		config.Report = log.Printf
	}
	found, err := replicas.New(replicas.Config{
		URLs:             config.URLs,
		TokenFile:        mounted(config.Folder, "token"),
		CAFile:           mounted(config.Folder, "ca.crt"),
		HandshakeTimeout: requestTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("adapter.Config.URLs: %w", err)
	}
	return &Adapter{
		config:  config,
		service: &service{replicas: found},
		words:   make(chan struct{}, 1),
		live:    map[string]*Share{},
		load:    map[string]float64{},
	}, nil
}

func mounted(folder, name string) string {
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Run follows the assignment until ctx ends, as by signal.NotifyContext with SIGTERM. Then it drains every
// share, acknowledges that, stops what is left, and returns within Grace.
func (a *Adapter) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range []func(context.Context){a.listen, a.readFile, a.speak, a.watch} {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			task(inner)
		}()
	}
	<-ctx.Done()
	err := a.leave()
	cancel()
	tasks.Wait()
	return err
}

// leave lets go of everything within the grace period, and says so.
func (a *Adapter) leave() error {
	began := time.Now()
	stopBy := began.Add(a.config.Grace)
	drainBy := stopBy.Add(-min(stopTimeout, a.config.Grace/4))
	a.change(func() { a.leaving = true })
	for time.Now().Before(drainBy) && !a.all((*Share).letGo) {
		time.Sleep(10 * time.Millisecond)
	}
	for until := time.Now().Add(lastWords); time.Now().Before(until) && a.unsaid(); {
		time.Sleep(10 * time.Millisecond)
	}
	a.change(func() { a.closing = true })
	ended := make(chan struct{})
	go func() { a.shares.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-time.After(time.Until(stopBy)):
		return errors.New("the grace period is over, and some shares have not stopped")
	}
}

// ReportLoad reports the load of shares by key, in the pool's own measure. It goes out with the next
// acknowledgement, within 10 s.
func (a *Adapter) ReportLoad(load map[string]float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, value := range load {
		if value >= 0 && value <= 1<<53 && len(a.load) < sharesMax {
			a.load[key] = value
		}
	}
}

// take takes an assignment if it is newer than all before it. news: the service has sent it just now.
func (a *Adapter) take(document []byte, news bool) {
	told, err := readAssignment(document)
	if err != nil {
		a.report("%v", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest != nil && told.UID != a.newest.UID {
		a.report("an assignment is for another pod, with the UID %.80q", told.UID)
		if a.ours || !news {
			return
		}
		// The service sends only this pod's own. What a file said before was another's.
		a.newest, a.said, a.named = nil, nil, 0
		a.leaseFrom, a.promised = time.Time{}, time.Time{}
	}
	a.ours = a.ours || news
	if news && a.newsAt.IsZero() && (a.newest == nil || told.Generation >= a.newest.Generation) {
		a.newsAt = time.Now()
		a.said = nil
		a.wake()
	}
	if a.newest != nil && told.Generation <= a.newest.Generation {
		return
	}
	switch before, after := a.lease(), told.lease(); {
	case before == 0 && after > 0 && a.serves():
		// The pool has become exclusive while this pod serves. It has until the first acknowledgement of
		// this, as long as a lease lasts.
		a.leaseFrom = time.Now()
	case 0 < after && after < before:
		// The service goes by the longest lease that it has told.
		a.promised = earlier(a.leaseUntil(), time.Now().Add(inUse(after)))
	}
	a.newest = told
	for key, share := range told.Shares {
		if known := a.live[key]; known != nil {
			if known.told != share {
				known.retryAtOnce()
			}
			known.told, known.assigned = share, true
		} else if !a.leaving {
			a.start(key, share)
		}
	}
	for key, share := range a.live {
		if _, is := told.Shares[key]; !is {
			share.assigned = false
		}
	}
	a.reviewAll()
}

// start begins a share's life. The caller holds mu.
func (a *Adapter) start(key string, told Told) {
	share := &Share{Key: key, adapter: a, changed: make(chan struct{}, 1), told: told, assigned: true}
	a.live[key] = share
	a.shares.Add(1)
	go share.live()
}

// forget ends a share's life. One that is told although it was stopped begins anew. The caller holds mu.
func (a *Adapter) forget(share *Share) {
	delete(a.live, share.Key)
	share.assigned = false
	if told, is := a.told(share.Key); is && !a.leaving && told.State != Drain {
		a.start(share.Key, told)
	}
	a.wake()
}

func (a *Adapter) told(key string) (Told, bool) {
	if a.newest == nil {
		return Told{}, false
	}
	told, is := a.newest.Shares[key]
	return told, is
}

func (a *Adapter) change(what func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what()
	a.reviewAll()
}

func (a *Adapter) reviewAll() {
	now := time.Now()
	for _, share := range a.live {
		share.review(now)
	}
	a.wake()
}

func (a *Adapter) wake() {
	select {
	case a.words <- struct{}{}:
	default:
	}
}

func (a *Adapter) all(holds func(*Share) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, share := range a.live {
		if !holds(share) {
			return false
		}
	}
	return true
}

// watch ends what is late: deadlines and the lease.
func (a *Adapter) watch(ctx context.Context) {
	for tick := time.NewTicker(watchEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		a.mu.Lock()
		now := time.Now()
		if !a.leaseFrom.IsZero() && !a.holdsLease(now) {
			a.report("the lease has run out: what is served is stopped")
			a.leaseFrom, a.promised, a.newsAt = time.Time{}, time.Time{}, time.Time{}
			a.service.reconnect()
		}
		for _, share := range a.live {
			if share.at == serving && !share.revoked {
				share.review(now)
			}
		}
		if a.newest != nil && a.named > a.newest.Generation && now.Sub(a.namedAt) > time.Second {
			a.named = 0
			a.service.reconnect()
		}
		a.mu.Unlock()
	}
}

// lease returns the pool's lease; zero without one. The caller holds mu.
func (a *Adapter) lease() time.Duration {
	if a.newest == nil {
		return 0
	}
	return a.newest.lease()
}

// serves tells whether any share is served, or begins to be. The caller holds mu.
func (a *Adapter) serves() bool {
	for _, share := range a.live {
		if !share.revoked && (share.at == serving || share.running == onServe) {
			return true
		}
	}
	return false
}

// leaseUntil is when the lease runs out, in the past before the first one. The caller holds mu.
func (a *Adapter) leaseUntil() time.Time {
	if a.leaseFrom.IsZero() {
		return a.promised
	}
	if until := a.leaseFrom.Add(inUse(a.lease())); until.After(a.promised) {
		return until
	}
	return a.promised
}

// inUse is the part of a lease in which an adapter serves.
func inUse(lease time.Duration) time.Duration {
	return time.Duration(float64(lease) * leasePart)
}

func earlier(one, other time.Time) time.Time {
	if one.Before(other) {
		return one
	}
	return other
}

// holdsLease tells whether shares may be served now. The caller holds mu.
func (a *Adapter) holdsLease(now time.Time) bool {
	return a.lease() == 0 || now.Before(a.leaseUntil())
}

func (a *Adapter) call(ctx context.Context, todo step, share *Share) error {
	callback := map[step]Callback{
		onPrepare: a.config.OnPrepare, onServe: a.config.OnServe, onDrain: a.config.OnDrain, onStop: a.config.OnStop,
	}[todo]
	if callback == nil {
		return nil
	}
	return callback(ctx, share)
}

func (a *Adapter) limitOf(todo step) time.Duration {
	switch todo {
	case onServe:
		return time.Minute
	case onStop:
		return stopTimeout
	default:
		return 5 * time.Minute
	}
}

func (a *Adapter) report(format string, arguments ...any) {
	a.config.Report(format, arguments...)
}
