package adapter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"vreplica.dev/scheduler/adapter"
	"vreplica.dev/scheduler/adapter/adaptertest"
)

const clicks = "team-b/clicks"

func newResolver(t *testing.T, config adapter.ResolverConfig) *adapter.Resolver {
	t.Helper()
	config.Report = t.Logf
	made, err := adapter.NewResolver(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// resolved waits until a vpod is in these pods.
func resolved(t *testing.T, resolver *adapter.Resolver, vpod string, want ...adapter.PlacedPod) {
	t.Helper()
	var found adapter.Placements
	var err error
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if found, err = resolver.Resolve(t.Context(), vpod); err == nil && slices.Equal(found.Pods, want) {
			return
		}
	}
	t.Fatalf("%s is in %v (%v), want %v", vpod, found, err, want)
}

func serve(vreplicas int, indexes adapter.Indexes) adapter.Told {
	return adapter.Told{State: adapter.Serve, VReplicas: vreplicas, Indexes: indexes, Epoch: 7}
}

func TestAVPodIsFoundAndFollowed(t *testing.T) {
	service := adaptertest.New(t)
	one, two := service.Pod("worker-0"), service.Pod("worker-1")
	one.Tell(orders, serve(2, "0-1"))
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{service.URL}})
	first := adapter.PlacedPod{Pod: "adapters/worker-0", VReplicas: 2, Indexes: "0-1"}
	if found, err := resolver.Resolve(t.Context(), orders); err != nil || !slices.Equal(found.Pods, []adapter.PlacedPod{first}) {
		t.Errorf("%v, %v", found, err)
	}
	two.Tell(orders, serve(1, "2"))
	resolved(t, resolver, orders, first, adapter.PlacedPod{Pod: "adapters/worker-1", VReplicas: 1, Indexes: "2"})
	service.Cut()
	one.Remove(orders)
	resolved(t, resolver, orders, adapter.PlacedPod{Pod: "adapters/worker-1", VReplicas: 1, Indexes: "2"})
	two.Remove(orders)
	resolved(t, resolver, orders)
}

func TestAnswersGoOnWhileTheServiceIsDown(t *testing.T) {
	service := adaptertest.New(t)
	service.Pod("worker-0").Tell(orders, serve(2, ""))
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{service.URL}})
	placed := adapter.PlacedPod{Pod: "adapters/worker-0", VReplicas: 2}
	resolved(t, resolver, orders, placed)
	service.Close()
	for range 50 {
		resolved(t, resolver, orders, placed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := resolver.Resolve(ctx, clicks); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody has said where it is: %v", err)
	}
}

func TestAnOlderGenerationChangesNothingAndAnEqualOneCounts(t *testing.T) {
	service := adaptertest.New(t)
	pod := service.Pod("worker-0")
	pod.Tell(orders, serve(2, ""))
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{service.URL}})
	resolved(t, resolver, orders, adapter.PlacedPod{Pod: "adapters/worker-0", VReplicas: 2})
	for _, line := range []string{
		`{"generation": 1, "placements": [{"pod": "adapters/old", "vreplicas": 9}]}`,
		`{"generation": 9, "placements": 3}`,
		`{"generation": 9, "placements": [{"pod": "adapters/x", "vreplicas": 2, "indexes": "1"}]}`,
		`{"generation": 2, "placements": [{"pod": "adapters/equal", "vreplicas": 1}]}`,
	} {
		service.SendPlacements(orders, line)
	}
	resolved(t, resolver, orders, adapter.PlacedPod{Pod: "adapters/equal", VReplicas: 1})
}

func TestNoMoreVPodsAreWatchedThanItsLimitAndTheLeastWantedGoes(t *testing.T) {
	service := adaptertest.New(t)
	pod := service.Pod("worker-0")
	keys := []string{"team-a/one", "team-a/two", "team-a/three"}
	for _, key := range keys {
		pod.Tell(key, serve(1, ""))
	}
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{service.URL}, VPodsMax: 2})
	for _, key := range []string{keys[0], keys[1], keys[0], keys[2]} {
		resolved(t, resolver, key, adapter.PlacedPod{Pod: "adapters/worker-0", VReplicas: 1})
	}
	want := []string{"team-a/one", "team-a/three"}
	for until := time.Now().Add(10 * time.Second); !slices.Equal(service.Watched(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%v are watched", service.Watched())
		}
	}
}

func TestWhatIsNoVPodIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	service := adaptertest.New(t)
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{service.URL}})
	for _, key := range []string{"", "orders", "a/b/c", "../b", "a/b\n", "a/b?c", "a/" + strings.Repeat("b", 700)} {
		if _, err := resolver.Resolve(t.Context(), key); err == nil || !strings.Contains(err.Error(), "is not a vpod's") {
			t.Errorf("%q: %v", key, err)
		}
	}
	if watched := service.Watched(); len(watched) != 0 {
		t.Errorf("%v are watched", watched)
	}
}

func TestAResolverThatIsClosedAnswersNothingNew(t *testing.T) {
	resolver := newResolver(t, adapter.ResolverConfig{URLs: []string{"http://127.0.0.1:1"}})
	resolver.Close()
	if _, err := resolver.Resolve(t.Context(), orders); !errors.Is(err, adapter.ErrUnresolved) {
		t.Errorf("%v", err)
	}
}
