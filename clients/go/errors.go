package scheduler

import (
	"fmt"
	"net/http"
	"time"
)

// InsufficientSlots is returned with the placements of the vreplicas that have a place. Knative
// returns them with controller.NewRequeueAfter.
type InsufficientSlots struct {
	// Left is the number of vreplicas without a place.
	Left int32
	// Reason is empty if they have a place on a pod that is being bound.
	Reason string
	// RetryAfter is when to schedule the object again.
	RetryAfter time.Duration
}

func (e *InsufficientSlots) Error() string {
	return fmt.Sprintf("%d vreplicas are not placed: %s", e.Left, orElse(e.Reason, "a pod is being bound"))
}

// NotScheduled is returned if no replica has answered, or none could: schedule the object again.
type NotScheduled struct {
	RetryAfter time.Duration
	// Stale is set if an object with a newer resourceVersion was scheduled before. Read the object
	// again first.
	Stale bool
	// Message is what the replicas have said.
	Message string
}

func (e *NotScheduled) Error() string { return "not scheduled: " + e.Message }

// RequestRefused is returned for a request that is wrong, and stays wrong.
type RequestRefused struct {
	// Status is the HTTP status, 400 to 499.
	Status  int
	Message string
}

// ofOneObject tells whether the object is refused, and not the client, its pool or its kind.
func (e *RequestRefused) ofOneObject() bool {
	return e.Status == http.StatusBadRequest || e.Status == http.StatusRequestEntityTooLarge
}

func (e *RequestRefused) Error() string {
	return fmt.Sprintf("the request is refused (%d): %s", e.Status, e.Message)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
