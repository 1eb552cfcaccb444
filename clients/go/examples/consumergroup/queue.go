package main

import (
	"context"
	"sync"
	"time"

	"vreplica.dev/scheduler"
)

// queue has each key once, oldest first.
type queue struct {
	mu      sync.Mutex
	waiting map[scheduler.NamespacedName]bool
	order   []scheduler.NamespacedName
	more    chan struct{}
}

func newQueue() *queue {
	return &queue{waiting: map[scheduler.NamespacedName]bool{}, more: make(chan struct{}, 1)}
}

func (q *queue) add(key scheduler.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting[key] {
		return
	}
	q.waiting[key] = true
	q.order = append(q.order, key)
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *queue) addAfter(key scheduler.NamespacedName, delay time.Duration) {
	time.AfterFunc(delay, func() { q.add(key) })
}

// next waits for a key and takes it.
func (q *queue) next(ctx context.Context) (scheduler.NamespacedName, error) {
	for {
		q.mu.Lock()
		if len(q.order) > 0 {
			key := q.order[0]
			q.order = q.order[1:]
			delete(q.waiting, key)
			q.mu.Unlock()
			return key, nil
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return scheduler.NamespacedName{}, ctx.Err()
		case <-q.more:
		}
	}
}
