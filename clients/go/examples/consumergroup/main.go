// The controller of this example is built like Knative's of ConsumerGroups, as far as it schedules:
// a lister, a queue, ReconcileKind and FinalizeKind, leader election. It needs nothing but the
// standard library, so it is a thing to try the client with, not a framework.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"vreplica.dev/scheduler"
)

const finalizer = "consumergroups.example.vreplica.dev"

func main() {
	server := flag.String("server", "https://kubernetes.default.svc", "the API server")
	serverCA := flag.String("server-ca-file", "", "authorities of the API server")
	serverToken := flag.String("server-token-file", "", "token for the API server")
	identity := flag.String("identity", "", "name of this replica")
	lease := flag.String("lease", "knative-eventing/kafka-controller", "Lease of the leader")
	urls := flag.String("schedule-urls", "", "URLs of the service, with commas between them")
	refresh := flag.Duration("refresh-period", 100*time.Second, "how often everything is scheduled again")
	var config scheduler.Config
	flag.StringVar(&config.TokenFile, "token-file", "", "token for the service")
	flag.StringVar(&config.CAFile, "ca-file", "", "authorities of the service")
	flag.StringVar(&config.StatefulSetNamespace, "statefulset-namespace", "knative-eventing", "")
	flag.StringVar(&config.StatefulSetName, "statefulset-name", "", "")
	flag.StringVar(&config.Pool, "pool", "", "AdapterPool; the StatefulSet's name if empty")
	flag.Parse()
	config.URLs = strings.Split(*urls, ",")
	config.Kind, config.Group = kind, group

	client, err := scheduler.New(config)
	if err != nil {
		log.Fatal(err)
	}
	api, err := newAPI(*server, *serverCA, *serverToken)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	work := newQueue()
	listed := newLister(api, work.add)
	go listed.run(ctx)
	namespace, name, _ := strings.Cut(*lease, "/")
	elector := &elector{api: api, namespace: namespace, name: name, identity: *identity}
	elector.run(ctx, func(ctx context.Context) {
		log.Printf("%s leads", *identity)
		for _, key := range listed.keys() {
			work.add(key)
		}
		go client.Refresh(ctx, *refresh, listed.vpods, work.add, func(key scheduler.NamespacedName, err error) {
			log.Printf("refresh %s/%s: %v", key.Namespace, key.Name, err)
		})
		reconciler := &reconciler{api: api, lister: listed, scheduler: client, queue: work}
		reconciler.run(ctx)
	})
}
