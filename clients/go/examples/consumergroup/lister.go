package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"sync"
	"time"

	"vreplica.dev/scheduler"
)

// lister has all ConsumerGroups, by a list and watches. It calls changed for each change.
type lister struct {
	api     *api
	changed func(scheduler.NamespacedName)

	mu      sync.Mutex
	synced  bool
	objects map[scheduler.NamespacedName]*consumerGroup
}

func newLister(api *api, changed func(scheduler.NamespacedName)) *lister {
	return &lister{api: api, changed: changed, objects: map[scheduler.NamespacedName]*consumerGroup{}}
}

func (l *lister) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.follow(ctx); err != nil && ctx.Err() == nil {
			log.Printf("consumergroups: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(retryPeriod):
			}
		}
	}
}

// follow lists once and watches until a watch fails.
func (l *lister) follow(ctx context.Context) error {
	var listed groupList
	if err := l.api.do(ctx, http.MethodGet, path+"/consumergroups", "application/json", nil, &listed); err != nil {
		return err
	}
	l.replace(listed.Items)
	version := listed.Metadata.ResourceVersion
	for {
		err := l.api.watch(ctx, version, func(kind string, object *consumerGroup) error {
			version = object.Metadata.ResourceVersion
			l.put(object, kind == "DELETED")
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (l *lister) replace(items []*consumerGroup) {
	l.mu.Lock()
	l.objects, l.synced = map[scheduler.NamespacedName]*consumerGroup{}, true
	for _, item := range items {
		l.objects[item.GetKey()] = item
	}
	l.mu.Unlock()
	for _, item := range items {
		l.changed(item.GetKey())
	}
}

func (l *lister) put(object *consumerGroup, gone bool) {
	l.mu.Lock()
	if gone {
		delete(l.objects, object.GetKey())
	} else {
		l.objects[object.GetKey()] = object
	}
	l.mu.Unlock()
	l.changed(object.GetKey())
}

func (l *lister) get(key scheduler.NamespacedName) *consumerGroup {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.objects[key]
}

func (l *lister) keys() []scheduler.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make([]scheduler.NamespacedName, 0, len(l.objects))
	for key := range l.objects {
		found = append(found, key)
	}
	return found
}

// vpods is a scheduler.VPodLister.
func (l *lister) vpods() ([]scheduler.VPod, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.synced {
		return nil, errors.New("the list of ConsumerGroups is not there yet")
	}
	found := make([]scheduler.VPod, 0, len(l.objects))
	for _, object := range l.objects {
		found = append(found, object)
	}
	return found, nil
}
