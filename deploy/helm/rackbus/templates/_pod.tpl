{{/* The pod of a process. Takes root, process (of rackbus.processes) and values. */}}

{{- define "rackbus.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "rackbus.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Above drainSeconds; the compute agent also releases nodes under validation, which takes 2 min at most. */}}
{{- define "rackbus.gracePeriod" -}}
{{- add (int .root.Values.drainSeconds) (ternary 150 30 (eq .process.name "compute-agent")) -}}
{{- end -}}

{{/* What a process reads of its Secrets, under the names that config.toml has. */}}
{{- define "rackbus.secrets" -}}
- secret:
    name: {{ .values.existingSecret | quote }}
    items:
      - {key: nkey.seed, path: nkey.seed}
      {{- if not .values.busTLSSecret }}
      - {key: bus.crt, path: tls/bus.crt}
      - {key: bus.key, path: tls/bus.key}
      - {key: ca.crt, path: tls/bus-ca.crt}
      {{- end }}
      {{- if .process.opens }}
      - {key: {{ .process.opens }}.seed, path: keys/families/{{ .process.opens }}.seed}
      {{- else }}
      {{- range list "compute" "switch" "powershelf" "rack" }}
      - {key: {{ . }}.pub, path: keys/families/{{ . }}.pub}
      {{- end }}
      - {key: link.key, path: keys/link.key}
      {{- if not .values.serverTLSSecret }}
      - {key: server.crt, path: tls/server.crt}
      - {key: server.key, path: tls/server.key}
      - {key: ca.crt, path: tls/server-ca.crt}
      {{- end }}
      {{- end }}
{{- with .values.busTLSSecret }}
- secret:
    name: {{ . | quote }}
    items:
      - {key: tls.crt, path: tls/bus.crt}
      - {key: tls.key, path: tls/bus.key}
      - {key: ca.crt, path: tls/bus-ca.crt}
{{- end }}
{{- with .values.serverTLSSecret }}
- secret:
    name: {{ . | quote }}
    items:
      - {key: tls.crt, path: tls/server.crt}
      - {key: tls.key, path: tls/server.key}
      - {key: ca.crt, path: tls/server-ca.crt}
{{- end }}
{{- end -}}

{{- define "rackbus.volumes" -}}
{{- $switches := and .root.Values.switches.domains (has .process.name (list "api" "switch-agent")) -}}
- name: config
  configMap: {name: {{ include "rackbus.fullname" .root }}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- include "rackbus.secrets" . | nindent 6 }}
{{- if $switches }}
- name: switches
  projected:
    defaultMode: 0440
    sources:
      {{- range .root.Values.switches.domains }}
      - secret:
          name: {{ .existingSecret | quote }}
          items:
            {{- $domain := .name }}
            {{- range list "ca.pem" "client.pem" "client.key" }}
            - {key: {{ . }}, path: {{ $domain }}/{{ . }}}
            {{- end }}
      {{- end }}
{{- end }}
- name: firmware
  {{- if .root.Values.firmware.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .root.Values.firmware.existingClaim | quote }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .root.Values.firmware.cacheSize }}}
  {{- end }}
- name: state
  {{- if .values.stateClaim }}
  persistentVolumeClaim: {claimName: {{ .values.stateClaim | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rackbus.mounts" -}}
- {name: config, mountPath: /etc/rackbus/config, readOnly: true}
- {name: secrets, mountPath: /etc/rackbus/secrets, readOnly: true}
{{- if and .root.Values.switches.domains (has .process.name (list "api" "switch-agent")) }}
- {name: switches, mountPath: /etc/rackbus/switches, readOnly: true}
{{- end }}
- {name: firmware, mountPath: /srv/firmware}
- {name: state, mountPath: /var/lib/rackbus}
- {name: tmp, mountPath: /tmp}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rackbus.args" -}}
- --config=/etc/rackbus/config/config.toml
{{- range $key, $value := .root.Values.settings }}
- {{ printf "--set=%s=%v" $key (ternary (printf "%.0f" $value) $value (kindIs "float64" $value)) | quote }}
{{- end }}
{{- end -}}

{{- define "rackbus.pod" -}}
{{- $component := printf "%s" .process.name -}}
metadata:
  labels:
    {{- include "rackbus.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
    rackbus.io/metrics: "true"
    {{- with .values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A changed configuration is a rollout.
    checksum/config: {{ include "rackbus.config" .root | sha256sum }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "rackbus.serviceAccount" .root | quote }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "rackbus.gracePeriod" . }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  securityContext:
    {{- include "rackbus.podSecurity" .root | nindent 4 }}
  {{- with .values.topologyKeys }}
  topologySpreadConstraints:
    {{- range . }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "rackbus.instance" $.root | nindent 10 }}
          app.kubernetes.io/component: {{ $component }}
    {{- end }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ $component }}
      image: {{ include "rackbus.image" (dict "root" .root "name" $component) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- include "rackbus.args" . | nindent 8 }}
      {{- with .values.env }}
      env:
        {{- range $name, $value := . }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      {{- end }}
      ports:
        - {name: metrics, containerPort: 8802}
        {{- if eq $component "api" }}
        - {name: grpc, containerPort: 8801}
        {{- if .root.Values.console.enabled }}
        - {name: console, containerPort: 8803}
        {{- end }}
        {{- end }}
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 3
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      securityContext:
        {{- include "rackbus.containerSecurity" .root | nindent 8 }}
      resources: {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        {{- include "rackbus.mounts" . | nindent 8 }}
  volumes:
    {{- include "rackbus.volumes" . | nindent 4 }}
{{- end -}}
