package main

import (
	"context"
	"errors"
	"log"
	"slices"
	"time"

	"vreplica.dev/scheduler"
)

const retryPeriod = time.Second

type reconciler struct {
	api       *api
	lister    *lister
	scheduler scheduler.Scheduler
	queue     *queue
}

// run reconciles one object after the other until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	for {
		key, err := r.queue.next(ctx)
		if err != nil {
			return
		}
		group := r.lister.get(key)
		if group == nil {
			continue
		}
		reconcile := r.reconcileKind
		if group.GetDeletionTimestamp() != nil {
			reconcile = r.finalizeKind
		}
		if err := reconcile(ctx, group); err != nil {
			after := retryPeriod
			var short *scheduler.InsufficientSlots
			var later *scheduler.NotScheduled
			if errors.As(err, &short) {
				after = short.RetryAfter
			} else if errors.As(err, &later) {
				after = later.RetryAfter
			}
			log.Printf("%s: %v; again in %s", key, err, after)
			r.queue.addAfter(key, after)
		}
	}
}

func (r *reconciler) reconcileKind(ctx context.Context, group *consumerGroup) error {
	if !slices.Contains(group.Metadata.Finalizers, finalizer) {
		// The change comes back through the watch.
		return r.api.setFinalizers(ctx, group, append(group.Metadata.Finalizers, finalizer))
	}
	placements, err := r.scheduler.Schedule(ctx, group)
	var short *scheduler.InsufficientSlots
	if err != nil && !errors.As(err, &short) {
		return err
	}
	// What has a place is published, even if some vreplicas have none.
	if failed := r.publish(ctx, group, placements); failed != nil {
		return failed
	}
	return err
}

// finalizeKind gives everything back, and then lets the object go.
func (r *reconciler) finalizeKind(ctx context.Context, group *consumerGroup) error {
	if !slices.Contains(group.Metadata.Finalizers, finalizer) {
		return nil
	}
	none := *group
	none.Spec.Replicas = new(int32)
	if _, err := r.scheduler.Schedule(ctx, &none); err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(group.Metadata.Finalizers), func(each string) bool { return each == finalizer })
	return r.api.setFinalizers(ctx, group, kept)
}

func (r *reconciler) publish(ctx context.Context, group *consumerGroup, placements []scheduler.Placement) error {
	if slices.Equal(placements, group.Status.Placements) {
		return nil
	}
	return r.api.setPlacements(ctx, group, placements)
}
