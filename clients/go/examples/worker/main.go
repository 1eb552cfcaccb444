// Command worker is an adapter: it works on each share of each tenant that is placed on its pod.
//
// Its work is a line in $VREPLICA_WORK_LOG, with the epoch that a write to an outside system would carry. So
// `vreplica adapter-kit worker` sees what it does.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"vreplica.dev/scheduler/adapter"
)

// worker has a loop for each share that is served.
type worker struct {
	mu    sync.Mutex
	loops map[string]*loop
	log   *os.File
}

type loop struct {
	ended  chan struct{}
	cancel context.CancelFunc
}

func (w *worker) serve(_ context.Context, share *adapter.Share) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if running := w.loops[share.Key]; running != nil {
		select {
		case <-running.ended:
		default:
			return nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	started := &loop{ended: make(chan struct{}), cancel: cancel}
	w.loops[share.Key] = started
	go func() {
		defer close(started.ended)
		for {
			told := share.Told()
			if ctx.Err() != nil || told.State != adapter.Serve || !share.StillMine(told.Epoch) {
				return
			}
			w.work(ctx, share.Key, told)
		}
	}()
	return nil
}

func (w *worker) work(ctx context.Context, key string, told adapter.Told) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(50 * time.Millisecond):
	}
	if w.log != nil {
		fmt.Fprintf(w.log, "{\"share\": %q, \"epoch\": %d}\n", key, told.Epoch)
	}
}

// drain waits until the piece of work that is under way is done.
func (w *worker) drain(ctx context.Context, share *adapter.Share) error {
	if running := w.take(share, false); running != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-running.ended:
		}
	}
	return nil
}

func (w *worker) stop(_ context.Context, share *adapter.Share) error {
	if running := w.take(share, true); running != nil {
		running.cancel()
		<-running.ended
	}
	return nil
}

func (w *worker) take(share *adapter.Share, remove bool) *loop {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.loops[share.Key]
	if remove {
		delete(w.loops, share.Key)
	}
	return running
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
	if err := follows.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
