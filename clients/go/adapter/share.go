package adapter

import (
	"context"
	"time"
)

// position is how far a share has come. The same four are where it is to get.
type position int

const (
	nothing position = iota
	prepared
	serving
	drained
)

type step int

const (
	noStep step = iota
	onPrepare
	onServe
	onDrain
	onStop
)

// Share is a vpod's vreplicas on this pod. A share that was taken away and comes back is another one.
type Share struct {
	// Key is the vpod's namespace/name.
	Key string

	adapter *Adapter
	changed chan struct{}

	// The rest is guarded by adapter.mu.
	told     Told
	assigned bool
	at       position
	// attempt is what OnServe was called with, and served that with which it has ended well.
	attempt Told
	served  *Told
	running step
	cancel  context.CancelFunc
	begun   bool
	// revoked: taken away without a drain, as its deadline or its lease is over.
	revoked bool
	// over: OnStop has ended, or nothing had begun.
	over     bool
	failures int
	retryAt  time.Time
	lastGoal position
}

// Told returns what the newest assignment says. State is Drain while the adapter lets go by itself.
func (s *Share) Told() Told {
	s.adapter.mu.Lock()
	defer s.adapter.mu.Unlock()
	told := s.told
	if goal := s.goal(time.Now()); goal == nothing || goal == drained {
		told.State = Drain
	}
	return told
}

// StillMine tells whether work that was begun under this epoch may go on. Ask before each piece of work. No
// check covers a pause of the process after it: that is what the epoch in a write is for.
func (s *Share) StillMine(epoch int64) bool {
	s.adapter.mu.Lock()
	defer s.adapter.mu.Unlock()
	now := time.Now()
	return s.assigned && s.told.Epoch == epoch && s.told.State != Prepare && s.at == serving &&
		!s.revoked && !s.isLate(now) && s.adapter.holdsLease(now)
}

func (s *Share) isLate(now time.Time) bool {
	return s.told.State == Drain && !s.told.Deadline.IsZero() && !now.Before(s.told.Deadline)
}

// goal is where the share is to get.
func (s *Share) goal(now time.Time) position {
	switch a := s.adapter; {
	case !s.assigned || s.revoked || a.closing:
		return nothing
	case a.leaving || s.told.State == Drain:
		return drained
	case s.told.State == Serve && (s.at == serving || a.holdsLease(now)):
		return serving
	default:
		return prepared
	}
}

// next is the callback that leads from where the share is to its goal.
func (s *Share) next(goal position) step {
	switch {
	case goal == nothing && s.begun:
		return onStop
	case goal == nothing || s.at == goal && (goal != serving || s.served != nil && s.served.sameWork(s.told)):
		return noStep
	case goal == serving && (s.at == prepared || s.at == serving):
		return onServe
	case (goal == drained || goal == prepared) && s.at == serving:
		return onDrain
	case goal == drained:
		return noStep
	default:
		return onPrepare
	}
}

// leads tells whether a callback that runs goes on under a goal.
func (s step) leads(goal position) bool {
	switch s {
	case onPrepare:
		return goal == prepared || goal == serving
	case onServe:
		return goal == serving
	case onDrain:
		return goal == drained || goal == prepared
	default:
		return true
	}
}

// review looks at the share again after something has changed. The caller holds adapter.mu.
func (s *Share) review(now time.Time) {
	if s.at == serving && !s.revoked && (s.isLate(now) || !s.adapter.holdsLease(now)) {
		s.revoked = true
	}
	if s.running != noStep && !s.running.leads(s.goal(now)) {
		s.cancel()
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// letGo tells whether nothing is done for the share, and nothing will be unless it is told.
func (s *Share) letGo() bool {
	return s.at != serving && (s.running == noStep || s.running == onStop)
}

// live calls one callback after the other, until the share is stopped.
func (s *Share) live() {
	defer s.adapter.shares.Done()
	for {
		s.adapter.mu.Lock()
		now := time.Now()
		goal := s.goal(now)
		if goal == drained && s.at == prepared {
			s.at = drained
		}
		if goal != s.lastGoal {
			s.lastGoal = goal
			s.retryAtOnce()
		}
		todo, wait := s.next(goal), s.retryAt.Sub(now)
		if s.over || todo == noStep && goal == nothing {
			s.adapter.forget(s)
			s.adapter.mu.Unlock()
			return
		}
		if todo == noStep || wait > 0 {
			s.adapter.mu.Unlock()
			s.pause(wait)
			continue
		}
		ctx, cancel := s.begin(todo, now)
		s.adapter.mu.Unlock()
		err := s.adapter.call(ctx, todo, s)
		cancel()
		s.finished(todo, err)
	}
}

// pause waits until something has changed, or for the next attempt if wait is more than 0.
func (s *Share) pause(wait time.Duration) {
	var again <-chan time.Time
	if wait > 0 {
		again = time.After(wait)
	}
	select {
	case <-s.changed:
	case <-again:
	}
}

// retryAtOnce forgets the failures so far. The caller holds adapter.mu.
func (s *Share) retryAtOnce() { s.failures, s.retryAt = 0, time.Time{} }

func (s *Share) begin(todo step, now time.Time) (context.Context, context.CancelFunc) {
	limit := s.adapter.limitOf(todo)
	if todo == onDrain && !s.told.Deadline.IsZero() {
		limit = s.told.Deadline.Sub(now)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	s.running, s.cancel, s.begun = todo, cancel, true
	if todo == onServe {
		// From the moment in which OnServe begins work may be under way.
		s.at, s.attempt = serving, s.told
	}
	return ctx, cancel
}

// finished takes how a callback has ended.
func (s *Share) finished(done step, err error) {
	s.adapter.mu.Lock()
	defer s.adapter.mu.Unlock()
	defer s.adapter.wake()
	s.running = noStep
	if err != nil && (done != onStop || s.failures+1 < stopsMax) {
		now := time.Now()
		if done.leads(s.goal(now)) {
			s.retryAt = now.Add(min(time.Second<<min(s.failures, 5), retryMax))
			s.failures++
			s.adapter.report("%s: %s has failed: %v", s.Key, done, err)
		}
		return
	}
	s.retryAtOnce()
	switch done {
	case onPrepare:
		s.at = prepared
	case onServe:
		served := s.attempt
		s.served = &served
	case onDrain:
		s.at, s.served = drained, nil
	case onStop:
		s.at, s.served, s.over = nothing, nil, true
	}
}

func (s step) String() string {
	return [...]string{"nothing", "OnPrepare", "OnServe", "OnDrain", "OnStop"}[s]
}
