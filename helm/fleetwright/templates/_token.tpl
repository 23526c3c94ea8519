{{/* The bootstrap token: the first admin token of a new database. */}}

{{- define "fleetwright.bootstrapSecretName" -}}
{{- default (printf "%s-bootstrap-token" (include "fleetwright.fullname" .)) .Values.auth.bootstrapToken.existingSecret -}}
{{- end -}}

{{/* The generated token: from the Secret in the cluster, else new.  Kept in .Values, so that all templates render the same one. */}}
{{- define "fleetwright.bootstrapToken" -}}
{{- if not (hasKey .Values "_bootstrapToken") -}}
{{- $token := printf "fw_%s_%s" (randAlphaNum 12 | lower) (randAlphaNum 43) -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (include "fleetwright.bootstrapSecretName" .) -}}
{{- with dig "data" .Values.auth.bootstrapToken.key "" (default dict $secret) -}}
{{- $token = b64dec . -}}
{{- end -}}
{{- $_ := set .Values "_bootstrapToken" $token -}}
{{- end -}}
{{- .Values._bootstrapToken -}}
{{- end -}}

{{/* Restarts pods when the generated token changes.  A truncated, salted hash does not reveal the token. */}}
{{- define "fleetwright.tokenChecksum" -}}
{{- if not .Values.auth.bootstrapToken.existingSecret -}}
checksum/bootstrap-token: {{ printf "%s/%s/%s" .Release.Namespace .Release.Name (include "fleetwright.bootstrapToken" .) | sha256sum | trunc 16 | quote }}
{{- end -}}
{{- end -}}
