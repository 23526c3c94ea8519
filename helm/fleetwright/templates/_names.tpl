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

{{/* Labels that select the pods of one component: (dict "root" $ "component" "api").  They never change. */}}
{{- define "fleetwright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fleetwright.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of the pods of one component; without versions, so that a new chart version alone restarts no pods: (dict "root" $ "component" "api"). */}}
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

{{/* The ServiceAccount of a component: (dict "root" $ "component" "api"). */}}
{{- define "fleetwright.serviceAccountName" -}}
{{- $account := (index .root.Values (.component | camelcase | untitle)).serviceAccount -}}
{{- if $account.create -}}
{{- default (printf "%s-%s" (include "fleetwright.fullname" .root) .component) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* The controller's Role in another namespace; the hash separates releases of the same name in different namespaces. */}}
{{- define "fleetwright.rightsName" -}}
{{- printf "%s-%s" (include "fleetwright.fullname" .) (sha256sum .Release.Namespace | trunc 8) -}}-controller
{{- end -}}

{{- define "fleetwright.image" -}}
{{- with .Values.image -}}
{{- if .registry -}}{{ .registry }}/{{- end -}}{{ .repository }}
{{- if .digest -}}@{{ .digest }}{{- else -}}:{{ default $.Chart.AppVersion .tag }}{{- end -}}
{{- end -}}
{{- end -}}
