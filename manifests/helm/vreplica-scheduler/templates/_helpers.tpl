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

{{/* "true" where controllers in other pods are served. */}}
{{- define "vreplica.schedule" -}}
{{- if and .Values.schedule.enabled (include "vreplica.active" .) }}true{{ end -}}
{{- end -}}

{{/* "true" where the upkeep of the webhook's certificate keeps that of the listener for controllers, too. */}}
{{- define "vreplica.scheduleUpkeep" -}}
{{- if and (include "vreplica.schedule" .) (not .Values.schedule.tls.secretName) (not .Values.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{/* The Secret with the certificate of the listener for controllers: yours, cert-manager's, or the upkeep's. */}}
{{- define "vreplica.scheduleSecret" -}}
{{- .Values.schedule.tls.secretName | default (.Values.certManager.enabled | ternary "vreplica-schedule-tls" "vreplica-schedule-certificate") -}}
{{- end -}}

{{/* "true" where adapter pods request vreplica.dev/slots: by default, with a kube-scheduler that others share. */}}
{{- define "vreplica.slotsResource" -}}
{{- $given := .Values.kubeScheduler.slotsResource }}
{{- if kindIs "bool" $given }}{{ if $given }}true{{ end }}{{ else if or (eq (include "vreplica.schedulerMode" .) "existing") (eq .Values.kubeScheduler.schedulerName "default-scheduler") }}true{{ end -}}
{{- end -}}

{{/* "true" where the webhook runs. */}}
{{- define "vreplica.webhook" -}}
{{- if and .Values.webhook.enabled (include "vreplica.active" .) }}true{{ end -}}
{{- end -}}

{{/* The Secret with the webhook's certificate: its own, or cert-manager's, which must not be taken for each other. */}}
{{- define "vreplica.webhookSecret" -}}
{{- .Values.certManager.enabled | ternary "vreplica-webhook-tls" "vreplica-webhook-certificate" -}}
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
{{- $_ := set $server "healthPort" 10262 -}}
{{- if not (hasKey $server "shutdownDelaySeconds") }}{{ $_ := set $server "shutdownDelaySeconds" 5 }}{{ end -}}
{{- $tls := dict "certFile" "/etc/vreplica-tls/tls.crt" "keyFile" "/etc/vreplica-tls/tls.key" "clientCAFile" "/etc/vreplica-tls/client-ca.crt" -}}
{{- $_ := set $tls "allowedClients" .Values.extender.tls.allowedClients -}}
{{- $_ := set $server "tls" $tls -}}
{{- else -}}
{{- if not $server.host }}{{ $_ := set $server "host" "127.0.0.1" }}{{ end -}}
{{- end -}}
{{- if .Values.metrics.enabled -}}
{{- $_ := set $server "healthPort" 10262 -}}
{{- if not $server.healthHost }}{{ $_ := set $server "healthHost" "0.0.0.0" }}{{ end -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- if include "vreplica.schedule" . -}}
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
{{- $_ := set $election "resourceNamespace" .Release.Namespace -}}
{{- $_ := set $election "resourceName" "vreplica-scheduler" -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- $scheduler := .Values.kubeScheduler.schedulerName -}}
{{- if and (ne (include "vreplica.schedulerMode" .) "none") (not $config.schedulerNames) (not (has $scheduler (list "vreplica-scheduler" "default-scheduler"))) -}}
{{- /* The built-in names would refuse to bind what it sends. */ -}}
{{- $_ := set $config "schedulerNames" (list $scheduler) -}}
{{- end -}}
{{- if include "vreplica.slotsResource" . }}{{ $_ := set $config "slotsResource" true }}{{ end -}}
{{- range $name := list "profiles" "schedulerNames" "filter" "logging" }}
{{- if not (get $config $name) }}{{ $_ := unset $config $name }}{{ end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Where a program of the pod reaches another one that listens on this host: loopback for all addresses. */}}
{{- define "vreplica.reachedAt" -}}
{{- if has . (list "" "0.0.0.0") }}127.0.0.1{{ else if eq . "::" }}::1{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* The extender's urlPrefix for a kube-scheduler in its pod: an IPv6 address in brackets. */}}
{{- define "vreplica.sidecarURL" -}}
{{- $host := include "vreplica.reachedAt" ((.Values.config.server | default dict).host | default "127.0.0.1") -}}
http://{{ contains ":" $host | ternary (printf "[%s]" $host) $host }}:10261/v1
{{- end -}}

{{/* Values that are each right and together are not: stops with the first. */}}
{{- define "vreplica.checks" -}}
{{- $scheduler := .Values.kubeScheduler.schedulerName -}}
{{- if and (ne (include "vreplica.schedulerMode" .) "none") .Values.config.schedulerNames (not (has $scheduler .Values.config.schedulerNames)) -}}
{{- fail (printf "config.schedulerNames: add %s (kubeScheduler.schedulerName), or none of its pods is bound" $scheduler) -}}
{{- end -}}
{{- $host := (.Values.config.server | default dict).host -}}
{{- if and $host (not (include "vreplica.https" .)) (not (has $host (list "127.0.0.1" "::1" "localhost"))) -}}
{{- fail (printf "config.server.host: %s is not loopback, and the extender is served without TLS" $host) -}}
{{- end -}}
{{- $election := .Values.config.leaderElection -}}
{{- if and (hasKey $election "leaderElect") (eq $election.leaderElect false) (gt (int .Values.extender.replicas) 1) -}}
{{- fail "config.leaderElection.leaderElect: false is for extender.replicas 1 only, or all of them place and move" -}}
{{- end -}}
{{- if include "vreplica.schedule" . -}}
{{- $schedule := .Values.schedule -}}
{{- if eq (empty $schedule.allowedServiceAccounts) (empty $schedule.tls.allowedClients) -}}
{{- fail "schedule: give either allowedServiceAccounts or tls.allowedClients, or nobody (or too many) would be let in" -}}
{{- end -}}
{{- if has (int $schedule.port) (list 10259 10261 10262) -}}
{{- fail (printf "schedule.port: %d is a port of the same pod already" (int $schedule.port)) -}}
{{- end -}}
{{- if and (include "vreplica.scheduleUpkeep" .) (not (include "vreplica.webhook" .)) -}}
{{- fail "schedule.tls.secretName: without the webhook and cert-manager nobody makes the certificate, so name a Secret of yours" -}}
{{- end -}}
{{- if and $schedule.tls.allowedClients (include "vreplica.scheduleUpkeep" .) -}}
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
{{- if and .Values.priorityClass.create (hasPrefix "system-" .Values.priorityClass.name) -}}
{{- fail (printf "priorityClass.name: %s is Kubernetes' own; priorityClass.create=false uses it" .Values.priorityClass.name) -}}
{{- end -}}
{{- end -}}

{{/* kube-scheduler's httpTimeout: a second longer than the service takes at the most, or what is done counts as failed. */}}
{{- define "vreplica.httpTimeout" -}}
{{- $server := .Values.config.server | default dict -}}
{{- printf "%ds" (add 1 ($server.deadlineSeconds | default 4 | ceil | int)) -}}
{{- end -}}

{{/* A probe of the extender: (dict "host" .. "port" .. "path" .. "metrics" ..). exec where the kubelet cannot reach the pod's loopback. */}}
{{- define "vreplica.probe" -}}
{{- if .metrics -}}
httpGet: {path: {{ .path }}, port: http-metrics}
{{- else -}}
exec:
  command:
    - python3
    - -I
    - -c
    - |
      import http.client, sys
      c = http.client.HTTPConnection({{ .host | quote }}, {{ .port }}, timeout=4)
      c.request("GET", "{{ .path }}")
      sys.exit(c.getresponse().status != 200)
{{- end -}}
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

{{/* A ServiceAccount, with the workload's annotations: (dict "name" .. "values" .. "root" $). */}}
{{- define "vreplica.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "vreplica.labels" .root | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/* The labels of a pod: what selects it, and the workload's podLabels: (dict "name" .. "values" ..). */}}
{{- define "vreplica.podLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: vreplica-scheduler
{{- with .values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods may run and how they spread: (dict "name" app name, "values" the workload's part, "root" $). */}}
{{- define "vreplica.placement" -}}
{{- $selector := dict "matchLabels" (dict "app.kubernetes.io/name" .name) -}}
{{- with .root.Values.priorityClass }}
{{- if .name }}
priorityClassName: {{ .name }}
{{- end }}
{{- end }}
{{- with concat .root.Values.imagePullSecrets ((.root.Values.global | default dict).imagePullSecrets | default list) | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
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
  namespace: {{ .root.Release.Namespace }}
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
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 30
  livenessProbe:
    httpGet: {path: /livez, port: https-metrics, scheme: HTTPS}
    periodSeconds: 10
    timeoutSeconds: 15
    failureThreshold: 8
  readinessProbe:
    httpGet: {path: /readyz, port: https-metrics, scheme: HTTPS}
    periodSeconds: 10
    timeoutSeconds: 5
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

{{/* Annotations of a pod template: the user's, and what has pods replaced when a file of theirs changes:
     (dict "values" .. "root" $ "files" (list template names)). */}}
{{- define "vreplica.podAnnotations" -}}
{{- $root := .root -}}
{{- $text := "" -}}
{{- range .files }}{{ $text = print $text (include (print $root.Template.BasePath "/" .) $root) }}{{ end -}}
checksum/config: {{ sha256sum $text }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}
