{{/* The bootstrap token: the first admin token of a new database. */}}

{{- define "fleetwright.bootstrapSecretName" -}}
{{- default (printf "%s-bootstrap-token" (include "fleetwright.fullname" .)) .Values.auth.bootstrapToken.existingSecret -}}
{{- end -}}

{{/* The made token: the one in the cluster, else a new one, drawn once a rendering (kept in .Values, which all templates share). */}}
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

{{/* Pods restart when the generated token changes.  Part of a salted hash: it does not reveal the token. */}}
{{- define "fleetwright.tokenChecksum" -}}
{{- if not .Values.auth.bootstrapToken.existingSecret -}}
checksum/bootstrap-token: {{ printf "%s/%s/%s" .Release.Namespace .Release.Name (include "fleetwright.bootstrapToken" .) | sha256sum | trunc 16 | quote }}
{{- end -}}
{{- end -}}
