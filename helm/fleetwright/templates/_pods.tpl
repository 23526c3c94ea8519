{{/* Parts of all pods. */}}

{{/* Start of every pod's spec: (dict "root" $ "serviceAccountName" "…"), with "callsKubernetes" true to mount the token. */}}
{{- define "fleetwright.podHead" -}}
serviceAccountName: {{ .serviceAccountName }}
automountServiceAccountToken: {{ default false .callsKubernetes }}
# For a Service named fleetwright, service links would set FLEETWRIGHT_PORT=tcp://…, which the API reads as its port.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* Scheduling of one component's pods, from the component's values. */}}
{{- define "fleetwright.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Start of every container's spec. */}}
{{- define "fleetwright.containerHead" -}}
image: {{ include "fleetwright.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* FLEETWRIGHT_DATABASE_URL: from the Secret given as context, or the SQLite file. */}}
{{- define "fleetwright.databaseUrl" -}}
- name: FLEETWRIGHT_DATABASE_URL
  {{- if .secret.name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret.name }}
      key: {{ .secret.key }}
  {{- else }}
  value: sqlite+aiosqlite:////var/lib/fleetwright/fleetwright.db
  {{- end }}
{{- end -}}

{{/* One key of a Secret as the file `token`, readable by the pod's group only: (dict "name" "…" "key" "…"). */}}
{{- define "fleetwright.tokenVolume" -}}
- name: token
  secret:
    secretName: {{ .name }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: token
{{- end -}}

{{/* URL of the API's Service. */}}
{{- define "fleetwright.apiUrl" -}}
{{ ternary "https" "http" (not (empty .Values.api.tls.existingSecret)) }}://{{ include "fleetwright.fullname" . }}-api:{{ .Values.api.service.port }}
{{- end -}}

{{/* With TLS of the API, its clients trust the authority in the same Secret: variable, mount and volume. */}}
{{- define "fleetwright.apiTrustEnv" -}}
{{- if .Values.api.tls.existingSecret }}
- name: SSL_CERT_FILE
  value: /etc/fleetwright/api-ca/ca.crt
{{- end }}
{{- end -}}

{{- define "fleetwright.apiTrustMount" -}}
{{- if .Values.api.tls.existingSecret }}
- name: api-ca
  mountPath: /etc/fleetwright/api-ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "fleetwright.apiTrustVolume" -}}
{{- with .Values.api.tls.existingSecret }}
- name: api-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end -}}
