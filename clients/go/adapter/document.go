package adapter

import (
	"encoding/json"
	"fmt"
	"time"
)

// State is what the pod is to do with a share.
type State string

// The states of a share.
const (
	Prepare State = "Prepare"
	Serve   State = "Serve"
	Drain   State = "Drain"
)

const (
	documentBytesMax = 1 << 20
	sharesMax        = 10_000
)

// Told is what an assignment says about one share.
type Told struct {
	State State `json:"state"`
	// VReplicas of the vpod are here, of Of in all; each takes Weight slots.
	VReplicas int `json:"vreplicas"`
	Weight    int `json:"weight"`
	Of        int `json:"of"`
	// Indexes says which of 0 … Of-1 are here, in a pool with identity Indexed. Otherwise it is empty.
	Indexes Indexes `json:"indexes,omitempty"`
	// Epoch is a fencing token: a pod that gets a share anew gets a greater one than any before. Send it with each
	// write to an outside system.
	Epoch int64 `json:"epoch"`
	// Peer is a pod where the vpod is published, or empty. Intent says why it is drained.
	Peer   string `json:"peer,omitempty"`
	Intent string `json:"intent,omitempty"`
	// Deadline is when a drained share is taken away; zero without one.
	Deadline time.Time `json:"deadline,omitzero"`
}

// sameWork tells whether OnServe need not be called again.
func (t Told) sameWork(other Told) bool {
	return t.VReplicas == other.VReplicas && t.Weight == other.Weight && t.Of == other.Of &&
		t.Indexes == other.Indexes && t.Epoch == other.Epoch
}

// assignment is the JSON that the pod is told.
type assignment struct {
	Generation   int64           `json:"generation"`
	UID          string          `json:"uid"`
	Shares       map[string]Told `json:"shares"`
	LeaseSeconds float64         `json:"leaseSeconds"`
}

func (a *assignment) lease() time.Duration {
	return time.Duration(a.LeaseSeconds * float64(time.Second))
}

func readAssignment(document []byte) (*assignment, error) {
	var read assignment
	if err := json.Unmarshal(document, &read); err != nil {
		return nil, fmt.Errorf("an assignment cannot be read: %w", err)
	}
	if read.UID == "" || read.Generation < 1 || read.LeaseSeconds < 0 || len(read.Shares) > sharesMax {
		return nil, fmt.Errorf("an assignment has no uid or generation, or too many shares")
	}
	for key, told := range read.Shares {
		if told.State != Prepare && told.State != Serve && told.State != Drain {
			return nil, fmt.Errorf("the share %q has the state %q", key, told.State)
		}
		if err := told.Indexes.check(told.VReplicas, told.Of); err != nil {
			return nil, fmt.Errorf("the share %q has the indexes %.80q: %w", key, told.Indexes, err)
		}
	}
	return &read, nil
}

// acknowledgement is the JSON that the pod says. Its lists are sorted.
type acknowledgement struct {
	UID        string             `json:"uid"`
	Generation int64              `json:"generation"`
	Serving    []string           `json:"serving"`
	Busy       []string           `json:"busy"`
	Draining   []string           `json:"draining"`
	Drained    []string           `json:"drained"`
	Load       map[string]float64 `json:"load,omitempty"`
}

// answer is the service's to an acknowledgement, also with 409.
type answer struct {
	Generation int64  `json:"generation"`
	Load       string `json:"load"`
}
