{{/* Names and labels.  Prefixes have at most 42 characters: the longest suffix has 17 ("-migrate-" and a hash), and a Job's name at most 63. */}}

{{- define "fleetwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{- define "fleetwright.fullname" -}}
{{- $name := include "fleetwright.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 42 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of a component's objects; a component that exists several times has an entry: (dict "root" $ "component" "guard" "entry" "row-a"). */}}
{{- define "fleetwright.objectName" -}}
{{- $ending := join "-" (compact (list .component (default "" .entry))) -}}
{{- printf "%s-%s" (include "fleetwright.fullname" .root | trunc (int (sub 62 (len $ending))) | trimSuffix "-") $ending -}}
{{- end -}}

{{/* Labels that select the pods of one component: (dict "root" $ "component" "api").  They never change. */}}
{{- define "fleetwright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fleetwright.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .entry }}
fleetwright.io/entry: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of the pods of one component; without versions, so that a new chart version alone restarts no pods. */}}
{{- define "fleetwright.podLabels" -}}
{{ include "fleetwright.selectorLabels" . }}
app.kubernetes.io/part-of: fleetwright
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "api"). */}}
{{- define "fleetwright.labels" -}}
{{ include "fleetwright.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name, namespace and labels of a component's object. */}}
{{- define "fleetwright.metadata" -}}
name: {{ include "fleetwright.objectName" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "fleetwright.labels" . | nindent 2 }}
{{- end -}}

{{/* The ServiceAccount of a component with values. */}}
{{- define "fleetwright.serviceAccountName" -}}
{{- if .values.serviceAccount.create -}}
{{- default (include "fleetwright.objectName" .) .values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A component's Role, also in other namespaces; the hash separates releases of the same name in different namespaces. */}}
{{- define "fleetwright.rightsName" -}}
{{- printf "%s-%s-%s" (include "fleetwright.fullname" .root) (sha256sum .root.Release.Namespace | trunc 8) (join "-" (compact (list .component (default "" .entry) (default "" .part)))) -}}
{{- end -}}

{{/* Binding of a component's Role or ClusterRole: adds "kind", and "namespace" of a Role. */}}
{{- define "fleetwright.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ include "fleetwright.rightsName" . }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "fleetwright.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "fleetwright.rightsName" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "fleetwright.serviceAccountName" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* One of the images of `make image`: (dict "root" $ "target" "api"). */}}
{{- define "fleetwright.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.registry -}}{{ $image.registry }}/{{- end -}}{{ $image.repository }}
{{- with index $image.digests .target -}}
@{{ . }}
{{- else -}}
:{{ default .root.Chart.AppVersion $image.tag }}{{ index $image.suffixes .target }}
{{- end -}}
{{- end -}}
