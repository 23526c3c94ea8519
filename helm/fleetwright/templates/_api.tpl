{{/* The API that the other components call: that of this release, or an external one. */}}

{{- define "fleetwright.apiUrl" -}}
{{- if .Values.api.enabled -}}
{{- $tls := include "fleetwright.tlsSecret" (dict "root" . "component" "api" "values" .Values.api) -}}
{{ ternary "https" "http" (not (empty $tls)) }}://{{ include "fleetwright.fullname" . }}-api:{{ .Values.api.service.port }}
{{- else -}}
{{- .Values.externalApi.url -}}
{{- end -}}
{{- end -}}

{{/* Secret and key of the authority of the API's certificate, or nothing: as JSON. */}}
{{- define "fleetwright.apiAuthority" -}}
{{- if .Values.api.enabled -}}
{{- with include "fleetwright.tlsSecret" (dict "root" . "component" "api" "values" .Values.api) -}}
{{- dict "name" . "key" "ca.crt" | toJson -}}
{{- end -}}
{{- else if .Values.externalApi.caSecret.name -}}
{{- dict "name" .Values.externalApi.caSecret.name "key" .Values.externalApi.caSecret.key | toJson -}}
{{- end -}}
{{- end -}}

{{/* Volume with the API token of a component, from its own Secret or the default one: (dict "root" $ "token" .values.token "volume" "token"). */}}
{{- define "fleetwright.apiTokenVolume" -}}
{{- $secret := dict "name" .token.existingSecret "key" .token.key -}}
{{- if not $secret.name -}}
{{- if .root.Values.api.enabled -}}
{{- $secret = dict "name" (include "fleetwright.bootstrapSecretName" .root) "key" .root.Values.auth.bootstrapToken.key -}}
{{- else -}}
{{- $secret = .root.Values.externalApi.tokenSecret -}}
{{- end -}}
{{- end -}}
{{- include "fleetwright.tokenVolume" (dict "volume" .volume "name" $secret.name "key" $secret.key) -}}
{{- end -}}

{{/* Restarts pods when the generated token changes.  A truncated, salted hash does not reveal the token. */}}
{{- define "fleetwright.tokenChecksum" -}}
{{- if and .Values.api.enabled (not .Values.auth.bootstrapToken.existingSecret) -}}
checksum/bootstrap-token: {{ printf "%s/%s/%s" .Release.Namespace .Release.Name (include "fleetwright.bootstrapToken" .) | sha256sum | trunc 16 | quote }}
{{- end -}}
{{- end -}}

{{- define "fleetwright.bootstrapSecretName" -}}
{{- default (printf "%s-bootstrap-token" (include "fleetwright.fullname" .)) .Values.auth.bootstrapToken.existingSecret -}}
{{- end -}}

{{/* The first admin token of a new database: from the Secret in the cluster, else new.  Kept in .Values, so that all templates render the same one. */}}
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
