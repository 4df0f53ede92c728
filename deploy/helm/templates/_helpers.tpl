{{- define "streamtopic.labels" -}}
app.kubernetes.io/name: streamtopic
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "streamtopic.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: name the image that you built of deploy/Containerfile" $image.repository -}}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}{{ else }}{{ $repository }}:{{ $image.tag }}{{ end -}}
{{- end }}

{{- /* Variables of settings: a map of settings, as text; lists and tables as JSON. null: not set. */ -}}
{{- define "streamtopic.variables" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{- /* A bare `off` in a file of values is false to YAML; this setting has the word. */ -}}
{{- $off := and (has $name (list "self_check")) (kindIs "bool" $value) }}
STREAMTOPIC_{{ upper $name }}: {{ if $off }}"off"{{ else }}{{ (kindIs "string" $value | ternary $value (toJson $value)) | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "streamtopic.settings" -}}
{{- $_ := required "settings.kafka: name Kafka's servers, host:port" .Values.settings.kafka }}
{{- include "streamtopic.variables" .Values.settings }}
STREAMTOPIC_SECRETS_DIR: /run/secrets/streamtopic
STREAMTOPIC_KEYS: /run/secrets/streamtopic
{{- end }}

{{- /* The pod of one command: a dict of root, command, part (its values) and config (name of the ConfigMap). */ -}}
{{- define "streamtopic.pod" -}}
{{- $root := .root -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .command }}
    image: {{ include "streamtopic.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: [{{ .command }}{{ if ne .command "init" }}, --json{{ end }}
      {{- if eq .command "serve" }}, --host, 0.0.0.0{{ range .part.names }}, --name, {{ . | quote }}{{ end }}{{ end }}]
    envFrom:
      - configMapRef: {name: {{ .config }}}
    env:
      {{- if has .command (list "ingest" "schedule") }}
      - {name: STREAMTOPIC_METRICS_ADDRESS, value: "0.0.0.0:9464"}
      {{- end }}
      {{- range $name, $value := include "streamtopic.variables" .part.settings | fromYaml }}
      - {name: {{ $name }}, value: {{ $value | quote }}}
      {{- end }}
    {{- if eq .command "serve" }}
    ports:
      - {name: pages, containerPort: 8787}
    # Probes need no token.
    livenessProbe:
      httpGet: {path: /livez, port: pages}
      periodSeconds: 10
      timeoutSeconds: 10
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: pages}
      periodSeconds: 10
      timeoutSeconds: 25
    {{- else if ne .command "init" }}
    ports:
      - {name: metrics, containerPort: 9464}
    # Kernels are compiled at the first start, which takes a while on a slow node.
    startupProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 5
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 10
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 10
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources: {{ toYaml .part.resources | nindent 6 }}
    volumeMounts:
      - {name: secrets, mountPath: /run/secrets/streamtopic, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      - {name: kernels, mountPath: /var/cache/streamtopic}
      {{- with $root.Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: secrets
    secret: {secretName: {{ .part.secret }}, defaultMode: 0440}
  - {name: tmp, emptyDir: {}}
  - {name: kernels, emptyDir: {}}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
