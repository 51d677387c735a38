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

{{/* Users, as CEL strings: the controller, the uninstall Job, and the parts of Kubernetes that clean up. */}}
{{- define "preheat.controllerUser" -}}
"system:serviceaccount:{{ .Release.Namespace }}:{{ include "preheat.controllerAccount" . }}"
{{- end -}}

{{- define "preheat.uninstallUser" -}}
"system:serviceaccount:{{ .Release.Namespace }}:{{ include "preheat.uninstallAccount" . }}"
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
