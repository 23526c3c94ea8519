{{/*
The default of every value that is absent.  After `helm upgrade --reuse-values` the values of the old chart replace those of
this one, so values that are new in this chart have no default.  Every template includes this first; files/defaults.json
has the values of values.yaml (scripts/chart_schema.py).
*/}}
{{- define "fleetwright.defaults" -}}
{{- if not (hasKey .Values "_complete") -}}
{{- include "fleetwright.fill" (dict "values" .Values "defaults" (.Files.Get "files/defaults.json" | fromJson)) -}}
{{- $_ := set .Values "_complete" true -}}
{{- end -}}
{{- end -}}

{{/* Sets what is absent.  Maps that belong to Kubernetes are taken as they are: null removes one of their keys. */}}
{{- define "fleetwright.fill" -}}
{{- $values := .values -}}
{{- range $key, $default := .defaults -}}
{{- if not (hasKey $values $key) -}}
{{- $_ := set $values $key (deepCopy (dict "copy" $default)).copy -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (get $values $key)) (not (has $key (list "resources" "podSecurityContext" "securityContext" "labels" "config" "job"))) -}}
{{- include "fleetwright.fill" (dict "values" (get $values $key) "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
