{{/* Parts of all pods.  Their context is a component: root, component, entry, values, port, callsApi, callsKubernetes. */}}

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

{{/* Metadata of a component's pods and the start of their spec; "checksum" restarts them when their configuration changes. */}}
{{- define "fleetwright.podStart" -}}
metadata:
  labels:
    {{- include "fleetwright.podLabels" . | nindent 4 }}
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .component }}
    {{- with .checksum }}
    checksum/config: {{ . }}
    {{- end }}
    {{- if .bootstrapToken }}
    {{- with include "fleetwright.tokenChecksum" .root }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "fleetwright.podHead" (dict "root" .root "serviceAccountName" (include "fleetwright.serviceAccountName" .) "callsKubernetes" .callsKubernetes) | nindent 2 }}
  {{- with include "fleetwright.scheduling" .values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if hasKey .values "topologySpreadConstraints" }}
  topologySpreadConstraints:
    {{- include "fleetwright.spread" . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int .values.terminationGracePeriodSeconds }}
{{- end -}}

{{/* Prefers different zones and nodes for the replicas of one version. */}}
{{- define "fleetwright.spread" -}}
{{- $component := . -}}
{{- if .values.topologySpreadConstraints -}}
{{- toYaml .values.topologySpreadConstraints -}}
{{- else -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "fleetwright.selectorLabels" $component | nindent 6 }}
{{- end }}
{{- end }}
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

{{/* Start of every container's spec: (dict "root" $ "target" "api"), with the image's target. */}}
{{- define "fleetwright.containerHead" -}}
image: {{ include "fleetwright.image" . | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
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

{{/* One key of a Secret as the file `token`, readable by the pod's group only: (dict "volume" "token" "name" "…" "key" "…"). */}}
{{- define "fleetwright.tokenVolume" -}}
- name: {{ default "token" .volume }}
  secret:
    secretName: {{ .name }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: token
{{- end -}}

{{/* Environment of every component: the log level, the trusted authorities, and the given variables. */}}
{{- define "fleetwright.environment" -}}
- name: FLEETWRIGHT_LOG_LEVEL
  value: {{ .root.Values.logLevel }}
{{- if include "fleetwright.hasCaBundle" .root }}
- name: SSL_CERT_FILE
  value: /etc/fleetwright/ca-bundle/ca.crt
{{- else if and .callsApi (include "fleetwright.apiAuthority" .root) }}
- name: SSL_CERT_FILE
  value: /etc/fleetwright/api-ca/ca.crt
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of every component: certificate, authorities, temporary files and the given mounts. */}}
{{- define "fleetwright.mounts" -}}
{{- if include "fleetwright.tlsSecret" . }}
- name: tls
  mountPath: /etc/fleetwright/tls
  readOnly: true
{{- end }}
{{- if include "fleetwright.hasCaBundle" .root }}
- name: ca-bundle
  mountPath: /etc/fleetwright/ca-bundle
  readOnly: true
{{- else if and .callsApi (include "fleetwright.apiAuthority" .root) }}
- name: api-ca
  mountPath: /etc/fleetwright/api-ca
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of these mounts; "tmp" is the size limit of temporary files. */}}
{{- define "fleetwright.volumes" -}}
{{- with include "fleetwright.tlsSecret" . }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if include "fleetwright.hasCaBundle" .root }}
{{- with .root.Values.caBundle }}
- name: ca-bundle
  {{- if .configMap }}
  configMap:
    name: {{ .configMap }}
  {{- else }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
  {{- end }}
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- else if .callsApi }}
{{- with include "fleetwright.apiAuthority" .root }}
{{- $authority := fromJson . }}
- name: api-ca
  secret:
    secretName: {{ $authority.name }}
    defaultMode: 0440
    items:
      - key: {{ $authority.key }}
        path: ca.crt
{{- end }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ default "256Mi" .tmp }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "fleetwright.hasCaBundle" -}}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret -}}true{{- end -}}
{{- end -}}

{{/* What a probe requests.  Guards and fault monitors serve /healthz at the port that has their certificate. */}}
{{- define "fleetwright.healthz" -}}
httpGet:
  path: /healthz
  port: metrics
  {{- if and (has .component (list "guard" "fault-monitor")) (include "fleetwright.tlsSecret" .) }}
  scheme: HTTPS
  {{- end }}
{{- end -}}

{{/* Probes of guards and fault monitors, which start within a minute and must be replaced soon. */}}
{{- define "fleetwright.serverProbes" -}}
startupProbe:
  {{- include "fleetwright.healthz" . | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 30
livenessProbe:
  {{- include "fleetwright.healthz" . | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 3
readinessProbe:
  {{- include "fleetwright.healthz" . | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 2
{{- end -}}

{{/* Options with which a server uses its certificate. */}}
{{- define "fleetwright.tlsArguments" -}}
{{- if include "fleetwright.tlsSecret" . }}
- --tls-cert
- /etc/fleetwright/tls/tls.crt
- --tls-key
- /etc/fleetwright/tls/tls.key
{{- end }}
{{- end -}}

{{/* Service of a component with one port, named http. */}}
{{- define "fleetwright.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "fleetwright.metadata" . | nindent 2 }}
  {{- with .values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: ClusterIP
  selector:
    {{- include "fleetwright.selectorLabels" . | nindent 4 }}
  ports:
    - name: http
      appProtocol: {{ ternary "https" "http" (not (empty (include "fleetwright.tlsSecret" .))) }}
      port: {{ .values.service.port }}
      targetPort: {{ default "metrics" .targetPort }}
{{- end -}}
