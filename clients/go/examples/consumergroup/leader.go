package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"
)

const (
	leaseSeconds = 6
	leaseRenewal = 1500 * time.Millisecond
	microTime    = "2006-01-02T15:04:05.000000Z"
)

type leaseObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       leaseSpec      `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
}

// elector leads while it holds a Lease, as client-go's leader election does.
type elector struct {
	api                       *api
	namespace, name, identity string

	seen   leaseSpec
	seenAt time.Time
}

// run calls lead when this replica becomes the leader. Its context ends when it is one no longer.
func (e *elector) run(ctx context.Context, lead func(context.Context)) {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	leads := false
	renewed := time.Now()
	ticker := time.NewTicker(leaseRenewal)
	defer ticker.Stop()
	for {
		holds, err := e.try(ctx)
		if err != nil && ctx.Err() == nil {
			log.Printf("lease: %v", err)
		}
		switch {
		case holds:
			renewed = time.Now()
			if !leads {
				leads = true
				go lead(leading)
			}
		case leads && (err == nil || time.Since(renewed) > leaseSeconds*time.Second*2/3):
			stop()
			log.Fatal("another replica leads, or the lease cannot be renewed")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// try takes or renews the Lease. It is false if another replica holds it.
func (e *elector) try(ctx context.Context) (bool, error) {
	at := "/apis/coordination.k8s.io/v1/namespaces/" + e.namespace + "/leases"
	var found leaseObject
	err := e.api.do(ctx, http.MethodGet, at+"/"+e.name, "application/json", nil, &found)
	var status *statusError
	now := time.Now()
	if errors.As(err, &status) && status.status == http.StatusNotFound {
		found = leaseObject{
			APIVersion: "coordination.k8s.io/v1",
			Kind:       "Lease",
			Metadata:   map[string]any{"name": e.name, "namespace": e.namespace},
		}
		found.Spec = e.spec(now)
		return noConflict(e.api.do(ctx, http.MethodPost, at, "application/json", found, nil))
	}
	if err != nil {
		return false, err
	}
	if found.Spec != e.seen {
		// By this clock, whatever that of the holder is.
		e.seen, e.seenAt = found.Spec, now
	}
	held := found.Spec.HolderIdentity != "" && now.Sub(e.seenAt) < leaseSeconds*time.Second
	if held && found.Spec.HolderIdentity != e.identity {
		return false, nil
	}
	found.Spec = e.spec(now)
	return noConflict(e.api.do(ctx, http.MethodPut, at+"/"+e.name, "application/json", found, nil))
}

func (e *elector) spec(now time.Time) leaseSpec {
	stamp := now.UTC().Format(microTime)
	return leaseSpec{e.identity, leaseSeconds, stamp, stamp}
}

// noConflict is false, without an error, if another replica was faster.
func noConflict(err error) (bool, error) {
	var status *statusError
	if errors.As(err, &status) && status.status == http.StatusConflict {
		return false, nil
	}
	return err == nil, err
}
