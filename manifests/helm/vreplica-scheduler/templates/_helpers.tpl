{{/* The name of the service and of its cluster-wide objects. vreplica-scheduler whatever the release is called: a name that follows the
     release would rename what is installed. nameOverride makes it follow, as in charts made by `helm create`. A Service's name and a
     label have 63 characters, of which the longest part takes 15. */}}
{{- define "vreplica.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if .Values.nameOverride -}}
{{- $name := contains .Values.nameOverride .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Values.nameOverride) -}}
{{ $name | trunc 48 | trimSuffix "-" }}
{{- else -}}
vreplica-scheduler
{{- end -}}
{{- end -}}

{{/* What the names of the other parts begin with: vreplica-webhook of vreplica-scheduler, else FULLNAME-webhook. */}}
{{- define "vreplica.prefix" -}}
{{- $name := include "vreplica.fullname" . -}}
{{ eq $name "vreplica-scheduler" | ternary "vreplica" $name }}
{{- end -}}

{{/* The namespace of all namespaced objects. */}}
{{- define "vreplica.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end -}}

{{/* Of the profile of kube-scheduler, and of adapter pods. */}}
{{- define "vreplica.schedulerName" -}}
{{ .Values.kubeScheduler.schedulerName | default (include "vreplica.fullname" .) }}
{{- end -}}

{{/* "": none. */}}
{{- define "vreplica.priorityClassName" -}}
{{- $name := .Values.priorityClass.name -}}
{{ kindIs "invalid" $name | ternary (include "vreplica.fullname" .) $name }}
{{- end -}}

{{/* The Secrets and the client names of the modes deployment and existing. */}}
{{- define "vreplica.extenderSecret" -}}
{{ .Values.extender.tls.secretName | default (printf "%s-extender-tls" (include "vreplica.prefix" .)) }}
{{- end -}}
{{- define "vreplica.kubeSchedulerSecret" -}}
{{ .Values.kubeScheduler.tls.secretName | default (printf "%s-kube-scheduler-tls" (include "vreplica.prefix" .)) }}
{{- end -}}
{{- define "vreplica.allowedClients" -}}
{{ .Values.extender.tls.allowedClients | default (list (printf "%s-kube-scheduler" (include "vreplica.prefix" .))) | toJson }}
{{- end -}}

{{/* "vreplica.name" (list $ PART): the name of a part. */}}
{{- define "vreplica.name" -}}
{{ include "vreplica.prefix" (first .) }}-{{ last . }}
{{- end -}}

{{/* The ServiceAccount of extender, kubeScheduler, webhook, and of the two that come with them, tokens and upkeep: (list $ WHO). */}}
{{- define "vreplica.serviceAccountName" -}}
{{- $root := first . -}}
{{- $who := last . -}}
{{- $owner := get (dict "tokens" "extender" "upkeep" "webhook") $who | default $who -}}
{{- $given := (get $root.Values $owner).serviceAccount.name -}}
{{- if and $given (eq $owner $who) -}}
{{ $given }}
{{- else if $given -}}
{{ $given }}-{{ $who }}
{{- else if eq $who "extender" -}}
{{ include "vreplica.fullname" $root }}
{{- else -}}
{{ include "vreplica.name" (list $root (get (dict "kubeScheduler" "kube-scheduler" "upkeep" "webhook-upkeep") $who | default $who)) }}
{{- end -}}
{{- end -}}

{{/* Whether a request comes from a service that writes ledgers and statuses, this one or another installation's, in CEL:
     (list $ "==" "||"), or that it does not: (list $ "!=" "&&"). */}}
{{- define "vreplica.writers" -}}
{{- $root := first . -}}
{{- $operator := index . 1 -}}
{{- $own := printf "%s/%s" (include "vreplica.namespace" $root) (include "vreplica.serviceAccountName" (list $root "extender")) -}}
{{- $terms := list -}}
{{- range prepend ($root.Values.admissionPolicies.otherWriters | default list) $own | uniq -}}
{{- $terms = append $terms (printf "request.userInfo.username %s 'system:serviceaccount:%s'" $operator (replace "/" ":" .)) -}}
{{- end -}}
{{ join (printf " %s " (last .)) $terms }}
{{- end -}}

{{/* Value of the label that adds a ClusterRole to what the service may do with foreign kinds. Of one installation only. */}}
{{- define "vreplica.sourcesLabel" -}}
{{- $name := include "vreplica.fullname" . -}}
{{ eq $name "vreplica-scheduler" | ternary "true" $name }}
{{- end -}}

{{/* The webhook's registrations, where they are not called as the program expects. */}}
{{- define "vreplica.registration" -}}
{{- if ne (include "vreplica.fullname" .) "vreplica-scheduler" }}
            - --registration={{ include "vreplica.fullname" . }}
{{- end }}
{{- end -}}

{{/* On every object. What only a Helm release has (instance, chart, managed-by) is left out of the kustomize base. */}}
{{- define "vreplica.labels" -}}
app.kubernetes.io/part-of: vreplica-scheduler
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end -}}

{{/* "true" where the service writes; "" in shadow mode, where it needs to read only. */}}
{{- define "vreplica.active" -}}
{{- if ne .Values.config.mode "shadow" }}true{{ end -}}
{{- end -}}

{{/* Where the kube-scheduler is that calls the extender: sidecar, deployment, existing; none in shadow mode. */}}
{{- define "vreplica.schedulerMode" -}}
{{- if include "vreplica.active" . }}{{ .Values.kubeScheduler.mode }}{{ else }}none{{ end -}}
{{- end -}}

{{/* "true" where the extender listens beyond loopback, with TLS both ways. */}}
{{- define "vreplica.https" -}}
{{- if has (include "vreplica.schedulerMode" .) (list "deployment" "existing") }}true{{ end -}}
{{- end -}}

{{/* "true" where a listener for other pods is served, schedule or adapters: (list $ NAME). */}}
{{- define "vreplica.listens" -}}
{{- $root := first . -}}
{{- if and (get $root.Values (last .)).enabled (include "vreplica.active" $root) }}true{{ end -}}
{{- end -}}

{{/* Those that are served, as a JSON list. */}}
{{- define "vreplica.listeners" -}}
{{- $names := list -}}
{{- range list "schedule" "adapters" }}{{ if include "vreplica.listens" (list $ .) }}{{ $names = append $names . }}{{ end }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* "true" where the upkeep of the webhook's certificate keeps that of such a listener, too: (list $ NAME). */}}
{{- define "vreplica.listenerUpkeep" -}}
{{- $root := first . -}}
{{- if and (include "vreplica.listens" .) (not (get $root.Values (last .)).tls.secretName) (not $root.Values.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{/* Those whose certificate it keeps, as a JSON list. */}}
{{- define "vreplica.listenersKept" -}}
{{- $names := list -}}
{{- range list "schedule" "adapters" }}{{ if include "vreplica.listenerUpkeep" (list $ .) }}{{ $names = append $names . }}{{ end }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Where the authorities of a listener are published: a JSON list of namespaces, the callers' and our own: (list $ NAME). */}}
{{- define "vreplica.listenerCANamespaces" -}}
{{- $root := first . -}}
{{- $given := get $root.Values (last .) -}}
{{- $namespaces := concat (list (include "vreplica.namespace" $root)) ($given.namespaces | default list) -}}
{{- range $given.allowedServiceAccounts -}}
{{- $namespaces = append $namespaces (splitList "/" . | first) -}}
{{- end -}}
{{- uniq $namespaces | toJson -}}
{{- end -}}

{{/* The Secret with the certificate of a listener: yours, cert-manager's, or the upkeep's: (list $ NAME). */}}
{{- define "vreplica.listenerSecret" -}}
{{- $root := first . -}}
{{- $made := printf "%s-%s-%s" (include "vreplica.prefix" $root) (last .) (ternary "tls" "certificate" $root.Values.certManager.enabled) -}}
{{- (get $root.Values (last .)).tls.secretName | default $made -}}
{{- end -}}

{{/* "true" where adapter pods request vreplica.dev/slots: by default, with a kube-scheduler that others share. */}}
{{- define "vreplica.slotsResource" -}}
{{- $given := .Values.kubeScheduler.slotsResource }}
{{- if kindIs "bool" $given }}{{ if $given }}true{{ end }}{{ else if or (eq (include "vreplica.schedulerMode" .) "existing") (eq (include "vreplica.schedulerName" .) "default-scheduler") }}true{{ end -}}
{{- end -}}

{{/* The namespaces whose pools are served, as JSON and CEL have a list; "" where it is those of all namespaces. */}}
{{- define "vreplica.poolNamespaces" -}}
{{- with (.Values.config.pools | default dict).namespaces }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A namespaceSelector of them; "" where it is all. */}}
{{- define "vreplica.poolNamespaceSelector" -}}
{{- with include "vreplica.poolNamespaces" . -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ . }}}
{{- end -}}
{{- end -}}

{{/* A matchCondition: the object is a pool of them, or a VPod, of any namespace, that names one; "" where it is all. */}}
{{- define "vreplica.poolMatchCondition" -}}
{{- with include "vreplica.poolNamespaces" . -}}
- name: of-a-pool-that-is-served
  expression: >-
    (request.resource.resource != 'adapterpools' ? object.spec.poolRef.?namespace.orValue(request.namespace) :
    request.namespace) in {{ . }}
{{- end -}}
{{- end -}}

{{/* "true" where evictions of adapter pods wait for their hand-over. */}}
{{- define "vreplica.evictions" -}}
{{- if and (include "vreplica.webhook" .) (include "vreplica.listens" (list . "adapters")) .Values.adapters.evictions }}true{{ end -}}
{{- end -}}

{{/* "true" where the webhook runs. */}}
{{- define "vreplica.webhook" -}}
{{- if and .Values.webhook.enabled (include "vreplica.active" .) }}true{{ end -}}
{{- end -}}

{{/* The Secret with the webhook's certificate: its own, or cert-manager's, which must not be taken for each other. */}}
{{- define "vreplica.webhookSecret" -}}
{{- .Values.certManager.enabled | ternary "webhook-tls" "webhook-certificate" | printf "%s-%s" (include "vreplica.prefix" .) -}}
{{- end -}}

{{/* The pod security standard that the namespace can enforce: "restricted" and "baseline" both forbid hostNetwork. */}}
{{- define "vreplica.podSecurity" -}}
{{- or .Values.webhook.hostNetwork .Values.extender.hostNetwork | ternary "privileged" "restricted" -}}
{{- end -}}

{{/* A repository, in global.imageRegistry if that is given: (dict "image" .. "root" $). A registry of its own goes: what comes before
     the first slash, if it has a dot or a port. */}}
{{- define "vreplica.repository" -}}
{{- $repository := .image.repository -}}
{{- with (.root.Values.global | default dict).imageRegistry -}}
{{- $first := regexFind "^[^/]+/" $repository -}}
{{- if or (contains "." $first) (contains ":" $first) (eq $first "localhost/") }}{{ $repository = trimPrefix $first $repository }}{{ end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{ $repository }}
{{- end -}}

{{/* An image from .repository, .tag or .digest, and a tag to fall back on: (dict "image" .. "tag" .. "root" $). */}}
{{- define "vreplica.image" -}}
{{- if .image.digest -}}
{{ printf "%s@%s" (include "vreplica.repository" .) .image.digest }}
{{- else -}}
{{ printf "%s:%s" (include "vreplica.repository" .) (.image.tag | default .tag) }}
{{- end -}}
{{- end -}}

{{/* kube-scheduler as old as the cluster: v1.33.4 of v1.33.4-eks-1234 or v1.33.4-gke.100. With its digest where we know it: the tag
     stays, for people and for `vreplica doctor`; who pulls goes by the digest. */}}
{{- define "vreplica.kubeSchedulerImage" -}}
{{- $image := .Values.kubeScheduler.image -}}
{{- $tag := $image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- include "vreplica.image" (dict "image" $image "tag" $tag "root" $) -}}
{{- if and (not $image.digest) (eq $image.repository "registry.k8s.io/kube-scheduler") -}}
{{- with get ($image.digests | default dict) $tag }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The whole VReplicaSchedulerConfiguration: the user's part, and what follows from the rest of the values. */}}
{{- define "vreplica.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "apiVersion" "config.vreplica.dev/v1alpha1" -}}
{{- $_ := set $config "kind" "VReplicaSchedulerConfiguration" -}}
{{- $server := $config.server | default dict -}}
{{- $_ := set $server "port" 10261 -}}
{{- if include "vreplica.https" . -}}
{{- if not $server.host }}{{ $_ := set $server "host" "0.0.0.0" }}{{ end -}}
{{- if not (hasKey $server "shutdownDelaySeconds") }}{{ $_ := set $server "shutdownDelaySeconds" 5 }}{{ end -}}
{{- $tls := dict "certFile" "/etc/vreplica-tls/tls.crt" "keyFile" "/etc/vreplica-tls/tls.key" "clientCAFile" "/etc/vreplica-tls/client-ca.crt" -}}
{{- $_ := set $tls "allowedClients" (include "vreplica.allowedClients" . | fromJsonArray) -}}
{{- $_ := set $server "tls" $tls -}}
{{- else -}}
{{- if not $server.host }}{{ $_ := set $server "host" "127.0.0.1" }}{{ end -}}
{{- end -}}
{{- $_ := set $server "healthPort" 10262 -}}
{{- $_ := set $server "healthHost" (include "vreplica.healthHost" .) -}}
{{- $_ := set $server "healthMetrics" .Values.metrics.enabled -}}
{{- $_ := set $config "server" $server -}}
{{- if include "vreplica.listens" (list $ "adapters") -}}
{{- $given := .Values.adapters -}}
{{- $tls := dict "certFile" "/etc/vreplica-adapters-tls/tls.crt" "keyFile" "/etc/vreplica-adapters-tls/tls.key" -}}
{{- $adapters := dict "host" ($given.host | default "0.0.0.0") "port" (int $given.port) "audience" $given.audience "tls" $tls -}}
{{- if $given.allowedServiceAccounts }}{{ $_ := set $adapters "allowedServiceAccounts" $given.allowedServiceAccounts }}{{ end -}}
{{- $_ := set $config "adapters" $adapters -}}
{{- end -}}
{{- if include "vreplica.listens" (list $ "schedule") -}}
{{- $given := .Values.schedule -}}
{{- $tls := dict "certFile" "/etc/vreplica-schedule-tls/tls.crt" "keyFile" "/etc/vreplica-schedule-tls/tls.key" -}}
{{- if $given.tls.allowedClients -}}
{{- $_ := set $tls "clientCAFile" "/etc/vreplica-schedule-tls/client-ca.crt" -}}
{{- $_ := set $tls "allowedClients" $given.tls.allowedClients -}}
{{- end -}}
{{- $schedule := dict "host" ($given.host | default "0.0.0.0") "port" (int $given.port) "audience" $given.audience "tls" $tls -}}
{{- if $given.allowedServiceAccounts }}{{ $_ := set $schedule "allowedServiceAccounts" $given.allowedServiceAccounts }}{{ end -}}
{{- $_ := set $config "schedule" $schedule -}}
{{- end -}}
{{- $election := deepCopy $config.leaderElection -}}
{{- $_ := set $election "resourceNamespace" (include "vreplica.namespace" .) -}}
{{- $_ := set $election "resourceName" (include "vreplica.fullname" .) -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- $scheduler := include "vreplica.schedulerName" . -}}
{{- if and (ne (include "vreplica.schedulerMode" .) "none") (not $config.schedulerNames) (not (has $scheduler (list "vreplica-scheduler" "default-scheduler"))) -}}
{{- /* The built-in names would refuse to bind what it sends. */ -}}
{{- $_ := set $config "schedulerNames" (list $scheduler) -}}
{{- end -}}
{{- if include "vreplica.slotsResource" . }}{{ $_ := set $config "slotsResource" true }}{{ end -}}
{{- if not (include "vreplica.poolNamespaces" .) }}{{ $_ := unset $config "pools" }}{{ end -}}
{{- range $name := list "profiles" "loadSources" "schedulerNames" "filter" "logging" }}
{{- if not (get $config $name) }}{{ $_ := unset $config $name }}{{ end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Where a program of the pod reaches another one that listens on this host: loopback for all addresses. */}}
{{- define "vreplica.reachedAt" -}}
{{- if has . (list "" "0.0.0.0") }}127.0.0.1{{ else if eq . "::" }}::1{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* Where the extender's health is served. A kubelet asks at the pod's address, and on the node's network at the node's loopback, as it
     asks a control plane of kubeadm's. */}}
{{- define "vreplica.healthHost" -}}
{{- $given := (.Values.config.server | default dict).healthHost -}}
{{ $given | default (and .Values.extender.hostNetwork (not .Values.metrics.enabled) | ternary "127.0.0.1" "0.0.0.0") }}
{{- end -}}

{{/* The extender's urlPrefix for a kube-scheduler in its pod: an IPv6 address in brackets. */}}
{{- define "vreplica.sidecarURL" -}}
{{- $host := include "vreplica.reachedAt" ((.Values.config.server | default dict).host | default "127.0.0.1") -}}
http://{{ contains ":" $host | ternary (printf "[%s]" $host) $host }}:10261/v1
{{- end -}}

{{/* The chart's own volumes, of all pods. */}}
{{- define "vreplica.volumeNames" -}}
[adapters-tls, adapters-tmp, certificate, extender-tls, kube-scheduler-config, kube-scheduler-tls, kube-scheduler-token, pod-token, schedule-tls, schedule-tmp, service-config, service-token, tmp]
{{- end -}}

{{/* Values that are each right and together are not: stops with the first. */}}
{{- define "vreplica.checks" -}}
{{- $scheduler := include "vreplica.schedulerName" . -}}
{{- if and (ne (include "vreplica.schedulerMode" .) "none") .Values.config.schedulerNames (not (has $scheduler .Values.config.schedulerNames)) -}}
{{- fail (printf "config.schedulerNames: add %s (kubeScheduler.schedulerName), or none of its pods is bound" $scheduler) -}}
{{- end -}}
{{- $host := (.Values.config.server | default dict).host -}}
{{- if and $host (not (include "vreplica.https" .)) (not (has $host (list "127.0.0.1" "::1" "localhost"))) -}}
{{- fail (printf "config.server.host: %s is not loopback, and the extender is served without TLS" $host) -}}
{{- end -}}
{{- if and (not .Values.extender.hostNetwork) (has (include "vreplica.healthHost" .) (list "127.0.0.1" "::1" "localhost")) -}}
{{- fail "config.server.healthHost: a kubelet does not reach the pod's loopback; leave it empty, health tells nothing of tenants" -}}
{{- end -}}
{{- $accounts := list -}}
{{- range $who := list "extender" "kubeScheduler" "webhook" "tokens" "upkeep" -}}
{{- $accounts = append $accounts (include "vreplica.serviceAccountName" (list $ $who)) -}}
{{- end -}}
{{- if lt (uniq $accounts | len) (len $accounts) -}}
{{- fail (printf "serviceAccount.name: each process needs an account of its own, or one has the rights of another: %s" (join ", " $accounts)) -}}
{{- end -}}
{{- $election := .Values.config.leaderElection -}}
{{- if and (hasKey $election "leaderElect") (eq $election.leaderElect false) (gt (int .Values.extender.replicas) 1) -}}
{{- fail "config.leaderElection.leaderElect: false is for extender.replicas 1 only, or all of them place and move" -}}
{{- end -}}
{{- $taken := list 10259 10261 10262 -}}
{{- range $name := include "vreplica.listeners" . | fromJsonArray -}}
{{- $port := int (get $.Values $name).port -}}
{{- if has $port $taken -}}
{{- fail (printf "%s.port: %d is a port of the same pod already" $name $port) -}}
{{- end -}}
{{- $taken = append $taken $port -}}
{{- if and (include "vreplica.listenerUpkeep" (list $ $name)) (not (include "vreplica.webhook" $)) -}}
{{- fail (printf "%s.tls.secretName: without the webhook and cert-manager nobody makes the certificate, so name a Secret of yours" $name) -}}
{{- end -}}
{{- end -}}
{{- if include "vreplica.listens" (list $ "schedule") -}}
{{- $schedule := .Values.schedule -}}
{{- if eq (empty $schedule.allowedServiceAccounts) (empty $schedule.tls.allowedClients) -}}
{{- fail "schedule: give either allowedServiceAccounts or tls.allowedClients, or nobody (or too many) would be let in" -}}
{{- end -}}
{{- if and $schedule.tls.allowedClients (include "vreplica.listenerUpkeep" (list $ "schedule")) -}}
{{- fail "schedule.tls.allowedClients: needs schedule.tls.secretName with client-ca.crt, or certManager.enabled" -}}
{{- end -}}
{{- end -}}
{{- $certs := .Values.certManager -}}
{{- range $before, $whole := dict "renewBefore" "duration" "clientRenewBefore" "clientDuration" -}}
{{- if ge (trimSuffix "h" (get $certs $before) | int) (trimSuffix "h" (get $certs $whole) | int) -}}
{{- fail (printf "certManager.%s: has to be shorter than certManager.%s" $before $whole) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.kubeScheduler.ignoredByScheduler (include "vreplica.slotsResource" .)) -}}
{{- fail "kubeScheduler.ignoredByScheduler: false needs kubeScheduler.slotsResource: true: kube-scheduler counts what pods request" -}}
{{- end -}}
{{- if and .Values.priorityClass.create (hasPrefix "system-" (include "vreplica.priorityClassName" .)) -}}
{{- fail (printf "priorityClass.name: %s is Kubernetes' own; priorityClass.create=false uses it" .Values.priorityClass.name) -}}
{{- end -}}
{{- $taken := include "vreplica.volumeNames" . | fromYamlArray -}}
{{- range $who := list "extender" "kubeScheduler" "webhook" -}}
{{- $values := index $.Values $who -}}
{{- range $values.extraVolumes -}}
{{- if has .name $taken -}}
{{- fail (printf "%s.extraVolumes: %s is a volume already; choose another name" $who .name) -}}
{{- end -}}
{{- $taken = append $taken .name -}}
{{- end -}}
{{- if eq $who "kubeScheduler" -}}
{{- /* The webhook's volumes are in a pod of their own. */}}
{{- $taken = include "vreplica.volumeNames" $ | fromYamlArray -}}
{{- end -}}
{{- if hasKey ($values.podLabels | default dict) "vreplica.dev/pool" -}}
{{- fail (printf "%s.podLabels: vreplica.dev/pool makes a pod an adapter of that pool" $who) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* kube-scheduler's httpTimeout: a second longer than the service takes at the most, or what is done counts as failed. */}}
{{- define "vreplica.httpTimeout" -}}
{{- $server := .Values.config.server | default dict -}}
{{- printf "%ds" (add 1 ($server.deadlineSeconds | default 4 | ceil | int)) -}}
{{- end -}}

{{/* A probe's numbers: those of the values that are given. */}}
{{- define "vreplica.probeNumbers" -}}
{{- $numbers := . | default dict -}}
{{- $lines := list -}}
{{- range $name := list "initialDelaySeconds" "periodSeconds" "timeoutSeconds" "failureThreshold" -}}
{{- with get $numbers $name }}{{ $lines = append $lines (printf "%s: %d" $name (int .)) }}{{ end -}}
{{- end -}}
{{ join "\n" $lines }}
{{- end -}}

{{/* A probe of the extender: (dict "path" .. "numbers" .. "root" $). On the node's network it goes to where the extender listens. */}}
{{- define "vreplica.probe" -}}
{{- $host := include "vreplica.healthHost" .root -}}
httpGet: {path: {{ .path }}, port: {{ .root.Values.metrics.enabled | ternary "http-metrics" "http-health" }}
{{- if and .root.Values.extender.hostNetwork (not (has $host (list "" "0.0.0.0" "::"))) }}, host: {{ $host | quote }}{{ end }}}
{{- include "vreplica.probeNumbers" .numbers | nindent 0 }}
{{- end -}}

{{/* What the pod security standard "restricted" asks of a pod, with podSecurityContext over it. */}}
{{- define "vreplica.podSecurityContext" -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with get $.Values.identity $name }}{{ $_ := set $context $name (int .) }}{{ end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $context (deepCopy .Values.podSecurityContext)) -}}
{{- end -}}

{{/* The same of a container, with nothing to write to but what is mounted, and securityContext over it. */}}
{{- define "vreplica.securityContext" -}}
{{- $context := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml (mergeOverwrite $context (deepCopy .Values.securityContext)) -}}
{{- end -}}

{{/* How a Deployment's pods are replaced: revisionHistoryLimit, and the workload's strategy or else the given one:
     (dict "values" .. "root" $ "strategy" ..). */}}
{{- define "vreplica.rollout" }}
revisionHistoryLimit: {{ int .root.Values.revisionHistoryLimit }}
{{- with .values.strategy | default .strategy }}
strategy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A ServiceAccount, with the workload's annotations, unless it is yours to make: (list $ WHO VALUES). */}}
{{- define "vreplica.serviceAccount" -}}
{{- $root := first . -}}
{{- with last . -}}
{{- if ne (toString .serviceAccount.create) "false" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "vreplica.serviceAccountName" (list $root (index $ 1)) }}
  namespace: {{ include "vreplica.namespace" $root }}
  labels:
    {{- include "vreplica.labels" $root | nindent 4 }}
  {{- with .serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels of a pod: what selects it, and the workload's podLabels, of which those that repeat one of ours do not count:
     (dict "name" .. "values" ..). */}}
{{- define "vreplica.podLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: vreplica-scheduler
{{- with omit (.values.podLabels | default dict) "app.kubernetes.io/name" "app.kubernetes.io/part-of" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The imagePullSecrets of all pods: ours and those of global, each once. A string is the name of a Secret. */}}
{{- define "vreplica.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Where pods may run and how they spread: (dict "name" app name, "values" the workload's part, "root" $). */}}
{{- define "vreplica.placement" -}}
{{- $selector := dict "matchLabels" (dict "app.kubernetes.io/name" .name) -}}
{{- with include "vreplica.priorityClassName" .root }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "vreplica.imagePullSecrets" .root }}
{{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $constraint := deepCopy . }}
  {{- if not (hasKey $constraint "labelSelector") }}{{ $_ := set $constraint "labelSelector" $selector }}{{ end }}
  - {{ toYaml $constraint | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A PodDisruptionBudget, where there is more than one: (dict "name" .. "values" .. "root" $). */}}
{{- define "vreplica.budget" -}}
{{- if gt (int .values.replicas) 1 }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ include "vreplica.namespace" .root }}
  labels:
    {{- include "vreplica.labels" .root | nindent 4 }}
spec:
  minAvailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
{{- end }}
{{- end -}}

{{/* The container kube-scheduler, beside the extender or alone. */}}
{{- define "vreplica.kubeSchedulerContainer" -}}
- name: kube-scheduler
  image: {{ include "vreplica.kubeSchedulerImage" . }}
  imagePullPolicy: {{ .Values.kubeScheduler.image.pullPolicy }}
  command:
    - kube-scheduler
    - --config=/etc/kube-scheduler/config.yaml
    - --authentication-kubeconfig=/etc/kube-scheduler/kubeconfig.yaml
    - --authorization-kubeconfig=/etc/kube-scheduler/kubeconfig.yaml
    - --secure-port=10259
    {{- with .Values.kubeScheduler.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: https-metrics, containerPort: 10259, protocol: TCP}
  startupProbe:
    httpGet: {path: /livez, port: https-metrics, scheme: HTTPS}
    {{- include "vreplica.probeNumbers" .Values.kubeScheduler.startupProbe | nindent 4 }}
  livenessProbe:
    httpGet: {path: /livez, port: https-metrics, scheme: HTTPS}
    {{- include "vreplica.probeNumbers" .Values.kubeScheduler.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet: {path: /readyz, port: https-metrics, scheme: HTTPS}
    {{- include "vreplica.probeNumbers" .Values.kubeScheduler.readinessProbe | nindent 4 }}
  resources:
    {{- toYaml .Values.kubeScheduler.resources | nindent 4 }}
  securityContext:
    {{- include "vreplica.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: kube-scheduler-config, mountPath: /etc/kube-scheduler, readOnly: true}
    {{- if eq (include "vreplica.schedulerMode" .) "sidecar" }}
    - {name: kube-scheduler-token, mountPath: /etc/kube-scheduler-token, readOnly: true}
    {{- else }}
    - {name: kube-scheduler-tls, mountPath: /etc/kube-scheduler-tls, readOnly: true}
    {{- end }}
    {{- with .Values.kubeScheduler.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Annotations of a pod template: what has pods replaced when a file of theirs changes, and the user's, less that one:
     (dict "values" .. "root" $ "files" (list template names)). */}}
{{- define "vreplica.podAnnotations" -}}
{{- $root := .root -}}
{{- $text := "" -}}
{{- range .files }}{{ $text = print $text (include (print $root.Template.BasePath "/" .) $root) }}{{ end -}}
checksum/config: {{ sha256sum $text }}
{{- with omit (.values.podAnnotations | default dict) "checksum/config" }}
{{ toYaml . }}
{{- end }}
{{- end -}}
