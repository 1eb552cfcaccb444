// Package scheduler is Knative's Scheduler over vreplica-scheduler's POST /v1/schedule.
//
// The types have the names and methods of knative.dev/eventing/pkg/scheduler, and the JSON of its
// duck type Placeable. They are declared here, so the module needs the standard library only.
package scheduler

import (
	"context"
	"time"
)

// NamespacedName is an object's namespace and name.
type NamespacedName struct {
	Namespace, Name string
}

// String returns namespace/name.
func (n NamespacedName) String() string { return n.Namespace + "/" + n.Name }

// Placement is how many vreplicas a pod has.
type Placement struct {
	PodName   string `json:"podName,omitempty"`
	VReplicas int32  `json:"vreplicas,omitempty"`
}

// VPod is an object with virtual replicas that are to be placed.
type VPod interface {
	// GetDeletionTimestamp is nil for an object that is not being deleted.
	GetDeletionTimestamp() *time.Time
	GetKey() NamespacedName
	// GetVReplicas returns the number of wanted vreplicas.
	GetVReplicas() int32
	// GetPlacements returns what the object's status publishes now. It is not changed.
	GetPlacements() []Placement
	// GetResourceVersion is the version of the object whose status that is.
	GetResourceVersion() string
}

// VPodLister returns all objects of a pool. It returns an error while its cache is not filled.
type VPodLister func() ([]VPod, error)

// Scheduler places vpods.
type Scheduler interface {
	// Schedule returns the placements that the object's status may publish.
	//
	// With an *InsufficientSlots there are placements beside the error. They are committed and may
	// be published.
	Schedule(ctx context.Context, vpod VPod) ([]Placement, error)
}

// SchedulerFunc makes a Scheduler of a function.
type SchedulerFunc func(ctx context.Context, vpod VPod) ([]Placement, error)

// Schedule calls f.
func (f SchedulerFunc) Schedule(ctx context.Context, vpod VPod) ([]Placement, error) {
	return f(ctx, vpod)
}

// GetTotalVReplicas returns the sum of all placements.
func GetTotalVReplicas(placements []Placement) int32 {
	var total int32
	for _, placement := range placements {
		total += placement.VReplicas
	}
	return total
}
