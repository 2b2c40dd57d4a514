{{/* config.toml, the same for all processes: each has its own files below /etc/rackbus/secrets. */}}

{{- define "rackbus.natsName" -}}
{{ include "rackbus.fullname" .root }}-nats-{{ .i }}
{{- end -}}

{{- define "rackbus.busURLs" -}}
{{- $urls := .Values.bus.urls -}}
{{- if .Values.nats.enabled -}}
{{- $urls = list -}}
{{- range $i := until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "tls://%s:4222" (include "rackbus.natsName" (dict "root" $ "i" $i))) -}}
{{- end -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}

{{- define "rackbus.config" -}}
listen = "0.0.0.0"
port = 8801

[metrics]
port = 8802

[logging]
log_level = {{ .Values.log.level | toJson }}
format = {{ .Values.log.format | toJson }}
enable_timestamps = true

[tls]
cert = "/etc/rackbus/secrets/tls/server.crt"
key = "/etc/rackbus/secrets/tls/server.key"
ca = "/etc/rackbus/secrets/tls/server-ca.crt"

[auth]
default_role = {{ .Values.access.defaultRole | toJson }}
viewers = {{ .Values.access.viewers | toJson }}
operators = {{ .Values.access.operators | toJson }}
admins = {{ .Values.access.admins | toJson }}

[bus]
urls = {{ include "rackbus.busURLs" . }}
replicas = {{ ternary .Values.nats.replicas .Values.bus.replicas .Values.nats.enabled | int }}
nkey_seed_file = "/etc/rackbus/secrets/nkey.seed"
tls_cert = "/etc/rackbus/secrets/tls/bus.crt"
tls_key = "/etc/rackbus/secrets/tls/bus.key"
tls_ca = "/etc/rackbus/secrets/tls/bus-ca.crt"

[keys]
dir = "/etc/rackbus/secrets/keys"

[workflows]
firmware_dir = "/srv/firmware"
artifact_store = {{ .Values.firmware.artifactStore | toJson }}

[api]
drain_timeout = "{{ int .Values.drainSeconds }}s"

[agent]
drain_timeout = "{{ int .Values.drainSeconds }}s"

[console]
enabled = {{ .Values.console.enabled }}
port = 8803
base_url = {{ default (printf "https://%s-api.%s.svc:8803" (include "rackbus.fullname" .) .Release.Namespace) .Values.console.baseURL | toJson }}
{{- if ne (toString (index .Values.settings "ssh.host_key_policy")) "off" }}

[ssh]
known_hosts = "/var/lib/rackbus/known_hosts"
{{- end }}

[switches]
insecure_switch = {{ .Values.switches.insecure }}
default_switch_domain = {{ .Values.switches.defaultDomain | toJson }}
{{- if .Values.switches.domains }}
switch_cert_root = "/etc/rackbus/switches"
client_tls_root = "/etc/rackbus/switches"
{{- end }}
{{- with .Values.extraConfig }}

{{ . }}
{{- end }}
{{ end -}}
