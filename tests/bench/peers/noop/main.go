// Command noop is a scheduler extender that decides nothing: what the protocol alone costs in Go.
//
// It decodes every request and encodes every result with the types of k8s.io/kube-scheduler/extender/v1. All nodes pass the
// filter, all have score 0, the victims are those that were given. Bind answers ok at once, or, with -kubeconfig, writes the
// Binding and nothing else: somebody has to, for a kube-scheduler that leaves the bind to its extender. It does so in protobuf, or,
// for a server that does not know that, with -json.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func filter(_ context.Context, args *extenderv1.ExtenderArgs) any {
	return &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
}

func prioritize(_ context.Context, args *extenderv1.ExtenderArgs) any {
	var names []string
	if args.NodeNames != nil {
		names = *args.NodeNames
	} else if args.Nodes != nil {
		for i := range args.Nodes.Items {
			names = append(names, args.Nodes.Items[i].Name)
		}
	}
	scores := make(extenderv1.HostPriorityList, len(names))
	for i, name := range names {
		scores[i] = extenderv1.HostPriority{Host: name}
	}
	return scores
}

func preempt(_ context.Context, args *extenderv1.ExtenderPreemptionArgs) any {
	victims := args.NodeNameToMetaVictims
	if victims == nil {
		victims = make(map[string]*extenderv1.MetaVictims, len(args.NodeNameToVictims))
		for node, whole := range args.NodeNameToVictims {
			meta := &extenderv1.MetaVictims{NumPDBViolations: whole.NumPDBViolations}
			for _, pod := range whole.Pods {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
			}
			victims[node] = meta
		}
	}
	return &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: victims}
}

func binder(client kubernetes.Interface) func(context.Context, *extenderv1.ExtenderBindingArgs) any {
	return func(ctx context.Context, args *extenderv1.ExtenderBindingArgs) any {
		if client == nil {
			return &extenderv1.ExtenderBindingResult{}
		}
		binding := &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
			Target:     v1.ObjectReference{Kind: "Node", Name: args.Node},
		}
		if err := client.CoreV1().Pods(args.PodNamespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			return &extenderv1.ExtenderBindingResult{Error: err.Error()}
		}
		return &extenderv1.ExtenderBindingResult{}
	}
}

func serve[Args any](verb func(context.Context, *Args) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		args := new(Args)
		if err := json.NewDecoder(r.Body).Decode(args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(verb(r.Context(), args)); err != nil {
			log.Print(err)
		}
	}
}

func connect(kubeconfig string, inJSON bool) (kubernetes.Interface, error) {
	if kubeconfig == "" {
		return nil, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// As kube-scheduler itself is set up: protobuf, and no limit of its own that would be in the way.
	if !inJSON {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	config.QPS, config.Burst = 1000, 2000
	return kubernetes.NewForConfig(config)
}

func main() {
	port := flag.Int("port", 0, "TCP port on loopback")
	kubeconfig := flag.String("kubeconfig", "", "write the Bindings there; without it bind is ok at once")
	inJSON := flag.Bool("json", false, "write them in JSON")
	flag.Parse()
	client, err := connect(*kubeconfig, *inJSON)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /v1/filter", serve(filter))
	http.HandleFunc("POST /v1/prioritize", serve(prioritize))
	http.HandleFunc("POST /v1/preempt", serve(preempt))
	http.HandleFunc("POST /v1/bind", serve(binder(client)))
	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
