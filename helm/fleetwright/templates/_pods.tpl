{{/* What the pods have in common. */}}

{{/* The head of every pod: (dict "root" $ "serviceAccountName" "…"), with "callsKubernetes" true where one has to. */}}
{{- define "fleetwright.podHead" -}}
serviceAccountName: {{ .serviceAccountName }}
automountServiceAccountToken: {{ default false .callsKubernetes }}
# Or a Service named fleetwright would set FLEETWRIGHT_PORT=tcp://… in the pods, a setting of ours.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* Where the pods of one component may run: the component's values. */}}
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

{{/* The head of every container. */}}
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
