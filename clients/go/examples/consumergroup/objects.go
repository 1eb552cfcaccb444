package main

import (
	"time"

	"vreplica.dev/scheduler"
)

const (
	kind  = "ConsumerGroup"
	group = "internal.kafka.eventing.knative.dev"
	path  = "/apis/" + group + "/v1alpha1"
)

type metadata struct {
	Namespace         string     `json:"namespace"`
	Name              string     `json:"name"`
	ResourceVersion   string     `json:"resourceVersion"`
	DeletionTimestamp *time.Time `json:"deletionTimestamp"`
	Finalizers        []string   `json:"finalizers"`
}

type consumerGroup struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Replicas *int32 `json:"replicas"`
	} `json:"spec"`
	Status struct {
		Placements []scheduler.Placement `json:"placements"`
	} `json:"status"`
}

var _ scheduler.VPod = (*consumerGroup)(nil)

func (c *consumerGroup) GetDeletionTimestamp() *time.Time { return c.Metadata.DeletionTimestamp }

func (c *consumerGroup) GetKey() scheduler.NamespacedName {
	return scheduler.NamespacedName{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}
}

func (c *consumerGroup) GetVReplicas() int32 {
	if c.Spec.Replicas == nil {
		return 1
	}
	return *c.Spec.Replicas
}

func (c *consumerGroup) GetPlacements() []scheduler.Placement { return c.Status.Placements }

func (c *consumerGroup) GetResourceVersion() string { return c.Metadata.ResourceVersion }
