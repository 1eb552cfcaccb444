// Command worker is an adapter: it works on each share of each tenant that is placed on its pod.
//
// Its work is a line in $VREPLICA_WORK_LOG, with the epoch that a write to an outside system would carry. So
// `vreplica adapter-kit worker` sees what it does.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"vreplica.dev/scheduler/adapter"
)

const loadEvery = 10 * time.Second

// worker has a loop for each share that is served.
type worker struct {
	mu    sync.Mutex
	loops map[string]*loop
	log   *os.File
}

// loop works on one share. worker.mu guards what changes.
type loop struct {
	ended  chan struct{}
	cancel context.CancelFunc
	// round is closed when the pieces of work that are under way are done.
	round chan struct{}
	// done counts pieces since the load was reported last.
	done int
}

// serve begins to work, or returns when the work under way is as the share is now.
func (w *worker) serve(ctx context.Context, share *adapter.Share) error {
	w.mu.Lock()
	running := w.loops[share.Key]
	if running == nil || running.isOver() {
		inner, cancel := context.WithCancel(context.Background())
		running = &loop{ended: make(chan struct{}), cancel: cancel}
		w.loops[share.Key] = running
		go w.run(inner, share, running)
	}
	round := running.round
	w.mu.Unlock()
	if round == nil {
		return nil
	}
	return wait(ctx, round)
}

func (w *worker) run(ctx context.Context, share *adapter.Share, running *loop) {
	for {
		told, goesOn := w.begin(ctx, share, running)
		if !goesOn {
			return
		}
		pieces := w.work(ctx, share.Key, told)
		w.mu.Lock()
		running.done += pieces
		close(running.round)
		w.mu.Unlock()
	}
}

// begin begins a round, or ends the loop. Under mu, so that serve sees a round of the words before, or none.
func (w *worker) begin(ctx context.Context, share *adapter.Share, running *loop) (adapter.Told, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := share.Told()
	if ctx.Err() != nil || told.State != adapter.Serve || !share.StillMine(told.Epoch) {
		close(running.ended)
		return told, false
	}
	running.round = make(chan struct{})
	return told, true
}

// work does one piece for each vreplica, and returns how many.
func (w *worker) work(ctx context.Context, key string, told adapter.Told) int {
	select {
	case <-ctx.Done():
		return 0
	case <-time.After(50 * time.Millisecond):
	}
	if told.Indexes == "" {
		for range told.VReplicas {
			w.write(map[string]any{"share": key, "epoch": told.Epoch})
		}
	}
	for index := range told.Indexes.All() {
		w.write(map[string]any{"share": key, "index": index, "epoch": told.Epoch})
	}
	return told.VReplicas
}

func (w *worker) write(piece map[string]any) {
	if w.log == nil {
		return
	}
	line, err := json.Marshal(piece)
	if err == nil {
		_, err = w.log.Write(append(line, '\n'))
	}
	if err != nil {
		log.Print(err)
	}
}

// drain waits until the pieces of work that are under way are done.
func (w *worker) drain(ctx context.Context, share *adapter.Share) error {
	w.mu.Lock()
	running := w.loops[share.Key]
	w.mu.Unlock()
	if running == nil {
		return nil
	}
	return wait(ctx, running.ended)
}

func (w *worker) stop(_ context.Context, share *adapter.Share) error {
	w.mu.Lock()
	running := w.loops[share.Key]
	delete(w.loops, share.Key)
	w.mu.Unlock()
	if running != nil {
		running.cancel()
		<-running.ended
	}
	return nil
}

// load returns the pieces of work in a second of each share, since the last call.
func (w *worker) load(period time.Duration) map[string]float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string]float64{}
	for key, running := range w.loops {
		found[key] = float64(running.done) / period.Seconds()
		running.done = 0
	}
	return found
}

func (l *loop) isOver() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return nil
	}
}

func main() {
	w := &worker{loops: map[string]*loop{}}
	if name := os.Getenv("VREPLICA_WORK_LOG"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		w.log = file
	}
	follows, err := adapter.New(adapter.Config{OnServe: w.serve, OnDrain: w.drain, OnStop: w.stop})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		for range time.Tick(loadEvery) {
			follows.ReportLoad(w.load(loadEvery))
		}
	}()
	if err := follows.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
