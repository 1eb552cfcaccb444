package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type stateReply struct {
	Pools []struct {
		Name    string `json:"name"`
		Found   bool   `json:"found"`
		PodList []struct {
			Name       string           `json:"name"`
			Placements map[string]int32 `json:"placements"`
		} `json:"podList"`
	} `json:"pools"`
}

// Reserved returns what the ledgers hold for objects of the configured kind, by object and pod. It
// comes from any replica, and may lag behind the leader.
func (c *Client) Reserved(ctx context.Context) (map[NamespacedName]map[string]int32, error) {
	path := "/state.json?" + url.Values{"pool": {c.pool.key()}}.Encode()
	content, err := c.ask(ctx, http.MethodGet, path, nil, stateBytesMax)
	if err != nil {
		return nil, err
	}
	var reply stateReply
	if err := json.Unmarshal(content, &reply); err != nil {
		return nil, notNow("the state cannot be read")
	}
	reserved := map[NamespacedName]map[string]int32{}
	for _, pool := range reply.Pools {
		if pool.Name != c.pool.key() || !pool.Found {
			continue
		}
		for _, pod := range pool.PodList {
			for key, count := range pod.Placements {
				if name, ours := c.keyOf(key); ours {
					if reserved[name] == nil {
						reserved[name] = map[string]int32{}
					}
					reserved[name][pod.Name] = count
				}
			}
		}
		return reserved, nil
	}
	message := "AdapterPool " + c.pool.key() + " does not exist"
	return nil, &RequestRefused{Status: http.StatusNotFound, Message: message}
}

// keyOf reads a ledger's key: namespace/name@kind.group, in lower case.
func (c *Client) keyOf(key string) (NamespacedName, bool) {
	object, source, _ := strings.Cut(key, "@")
	namespace, name, _ := strings.Cut(object, "/")
	return NamespacedName{namespace, name}, source == strings.ToLower(c.config.Kind+"."+c.config.Group)
}

// Refresh schedules every listed object once in a period, until ctx ends. It calls enqueue for an
// object whose status differs from the answer, as after a move. Knative's autoscaler and evictor do
// this work with Knative's own scheduler. Run it on the replica of the controller that leads.
//
// It calls failed, which may be nil, with each error: the lister's, with an empty key, or what
// Schedule has returned for an object. If no replica leads, or the service refuses all objects of
// this client (RequestRefused with another status than 400 and 413), the round ends there.
//
// An object that is being deleted is left to its finalizer.
func (c *Client) Refresh(
	ctx context.Context, period time.Duration, lister VPodLister,
	enqueue func(NamespacedName), failed func(NamespacedName, error),
) {
	if failed == nil {
		failed = func(NamespacedName, error) {}
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		c.refreshOnce(ctx, lister, enqueue, failed)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Client) refreshOnce(
	ctx context.Context, lister VPodLister,
	enqueue func(NamespacedName), failed func(NamespacedName, error),
) {
	listed, err := lister()
	if err != nil {
		failed(NamespacedName{}, err)
		return
	}
	for _, vpod := range listed {
		if vpod.GetDeletionTimestamp() != nil {
			continue
		}
		placements, err := c.Schedule(ctx, vpod)
		var short *InsufficientSlots
		var later *NotScheduled
		var refused *RequestRefused
		switch {
		case err == nil || errors.As(err, &short):
			if !samePlacements(placements, vpod.GetPlacements()) {
				enqueue(vpod.GetKey())
			}
		case ctx.Err() != nil:
			return
		case errors.As(err, &later) && later.Stale:
			// The list lags behind.
		default:
			failed(vpod.GetKey(), err)
			if !errors.As(err, &refused) || !refused.ofOneObject() {
				// The next period is soon enough.
				return
			}
		}
	}
}

func samePlacements(some, others []Placement) bool {
	return slices.Equal(byPod(some), byPod(others))
}

func byPod(placements []Placement) []Placement {
	sorted := slices.DeleteFunc(slices.Clone(placements), func(each Placement) bool { return each.VReplicas == 0 })
	slices.SortFunc(sorted, func(a, b Placement) int { return strings.Compare(a.PodName, b.PodName) })
	return sorted
}
