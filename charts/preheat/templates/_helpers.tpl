{{/* Prefix of every name in this release. */}}
{{- define "preheat.fullname" -}}
{{- if contains "preheat" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-preheat" (.Release.Name | trunc 32 | trimSuffix "-") }}{{- end -}}
{{- end -}}

{{- define "preheat.labels" -}}
app.kubernetes.io/name: preheat
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "preheat.selector" -}}
app.kubernetes.io/name: preheat
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* The product image, by digest where one is given. */}}
{{- define "preheat.image" -}}
{{- $repository := required "image.repository: set it to the repository of the Preheat image" .Values.image.repository -}}
{{- if .Values.image.digest -}}{{ printf "%s@%s" $repository .Values.image.digest }}
{{- else -}}{{ printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}{{- end -}}
{{- end -}}

{{- define "preheat.bucket" -}}
{{- required "store.bucket: set it to the name of an S3 bucket that exists" .Values.store.bucket -}}
{{- end -}}

{{/* Identity of the cluster: a value, else the uid of kube-system. */}}
{{- define "preheat.clusterId" -}}
{{- if .Values.clusterId -}}{{ .Values.clusterId }}
{{- else -}}
{{- $namespace := lookup "v1" "Namespace" "" "kube-system" -}}
{{- if $namespace -}}{{ $namespace.metadata.uid }}
{{- else -}}{{ fail "clusterId: set it (any word of letters and digits that no other cluster sharing the bucket uses): Helm cannot look up this cluster's identity here" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the pull secrets, as a list in JSON. */}}
{{- define "preheat.pullSecretNames" -}}
{{- $names := list -}}
{{- range .Values.imagePullSecrets -}}{{- $names = append $names .name -}}{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- define "preheat.fetchUser" -}}
{{- if not (kindIs "invalid" .Values.fetch.runAsUser) -}}{{ int64 .Values.fetch.runAsUser }}{{- end -}}
{{- end -}}

{{- define "preheat.controllerAccount" -}}
{{ include "preheat.fullname" . }}-controller
{{- end -}}

{{- define "preheat.uninstallAccount" -}}
{{ include "preheat.fullname" . }}-uninstall
{{- end -}}

{{- define "preheat.serverName" -}}
{{ include "preheat.fullname" . }}-server
{{- end -}}

{{- define "preheat.serverSelector" -}}
app.kubernetes.io/name: preheat
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{/* Where pods report to; empty where nobody takes reports. */}}
{{- define "preheat.reportsUrl" -}}
{{- if .Values.server.enabled -}}
{{- if .Values.server.url -}}{{ .Values.server.url | trimSuffix "/" }}
{{- else -}}
{{- $host := .Values.server.clusterIP | default (printf "%s.%s.svc" (include "preheat.serverName" .) .Release.Namespace) -}}
{{- if contains ":" $host -}}{{- $host = printf "[%s]" $host -}}{{- end -}}
{{- if .Values.server.tls.enabled -}}{{ printf "https://%s" $host }}{{- else -}}{{ printf "http://%s" $host }}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "preheat.serverSecret" -}}
{{- .Values.server.tls.secretName | default (printf "%s-tls" (include "preheat.serverName" .)) -}}
{{- end -}}

{{/* Names the certificate must be for, separated by commas. */}}
{{- define "preheat.certificateNames" -}}
{{- $service := include "preheat.serverName" . -}}
{{- $short := printf "%s.%s.svc" $service .Release.Namespace -}}
{{- $host := urlParse (include "preheat.reportsUrl" .) | dig "hostname" "" -}}
{{- list $short $service (printf "%s.%s" $service .Release.Namespace) $host | uniq | join "," -}}
{{- end -}}

{{/* The certificate of the server as JSON: the one there is, while it is for the same names; else a new one. Made once
in a rendering, since two templates ask: so it is put aside among the values. */}}
{{- define "preheat.certificate" -}}
{{- if not (hasKey .Values.server "certificate") -}}
{{- $names := include "preheat.certificateNames" . -}}
{{- $made := dict -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "preheat.serverSecret" .) -}}
{{- if and $found (eq $names (dig "metadata" "annotations" "preheat.dev/certificate-names" "" $found)) -}}
{{- range $key := list "ca.crt" "tls.crt" "tls.key" -}}
{{- $_ := set $made $key (dig "data" $key "" $found | b64dec) -}}
{{- end -}}
{{- else -}}
{{- $ips := list -}}
{{- $hosts := list -}}
{{- range $name := splitList "," $names -}}
{{- if or (contains ":" $name) (regexMatch "^[0-9.]+$" $name) -}}{{- $ips = append $ips $name -}}{{- else -}}{{- $hosts = append $hosts $name -}}{{- end -}}
{{- end -}}
{{- $ca := genCAWithKey (printf "%s-ca" (include "preheat.serverName" .)) 3650 (genPrivateKey "ecdsa") -}}
{{- $certificate := genSignedCertWithKey (include "preheat.serverName" . | trunc 63) $ips $hosts 3650 $ca (genPrivateKey "ecdsa") -}}
{{- $made = dict "ca.crt" $ca.Cert "tls.crt" $certificate.Cert "tls.key" $certificate.Key -}}
{{- end -}}
{{- $_ := set .Values.server "certificate" $made -}}
{{- end -}}
{{- toJson .Values.server.certificate -}}
{{- end -}}

{{/* Authorities that pods know the server by, as PEM; empty: those of their own images. */}}
{{- define "preheat.reportsCa" -}}
{{- if and .Values.server.enabled .Values.server.tls.enabled -}}
{{- if .Values.server.tls.ca -}}{{ .Values.server.tls.ca }}
{{- else if not .Values.server.tls.secretName -}}{{ index (include "preheat.certificate" . | fromJson) "ca.crt" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Users, as CEL strings: the controller, the uninstall Job, the server, and the parts of Kubernetes that clean up. */}}
{{- define "preheat.controllerUser" -}}
"system:serviceaccount:{{ .Release.Namespace }}:{{ include "preheat.controllerAccount" . }}"
{{- end -}}

{{- define "preheat.uninstallUser" -}}
"system:serviceaccount:{{ .Release.Namespace }}:{{ include "preheat.uninstallAccount" . }}"
{{- end -}}

{{- define "preheat.serverUser" -}}
"system:serviceaccount:{{ .Release.Namespace }}:{{ include "preheat.serverName" . }}"
{{- end -}}

{{- define "preheat.cleaners" -}}
"system:serviceaccount:kube-system:namespace-controller", "system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"
{{- end -}}

{{- define "preheat.podSecurityContext" -}}
runAsNonRoot: true
{{- if not (kindIs "invalid" .Values.controller.runAsUser) }}
runAsUser: {{ int64 .Values.controller.runAsUser }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "preheat.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
