//! Tests every argument of the language (docs/reference/jobspec.md, section 4) and its key in JSON.

use super::read;
use crate::job::tables::JOB;
use crate::schema::{Content, Schema};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// Each context has a name, a table, the text before and after an argument, and the argument's place in JSON. The
/// text is nested in the context before the arrow.
const CONTEXTS: &str = r#"
job | | job "a" { | |
group | job | group "g" { | /TaskGroups/0
task | group | task "t" { | /Tasks/0
constraint | job | constraint { | /Constraints/0
affinity | task | affinity { | /Affinities/0
spread | group | spread { | /Spreads/0
target | spread | target "v" { | /SpreadTarget/0
update | group | update { | /Update
migrate | group | migrate { | /Migrate
reschedule | job | reschedule { | /Reschedule
reschedule in a group | group | reschedule { | /ReschedulePolicy
restart | task | restart { | /RestartPolicy
disconnect | group | disconnect { | /Disconnect
ephemeral_disk | group | ephemeral_disk { | /EphemeralDisk
scaling | group | scaling { | /Scaling | max = 9
scaling of a task | task | scaling "cpu" { | /ScalingPolicies/0 | max = 9
periodic | job | periodic { | /Periodic
parameterized | job | parameterized { | /ParameterizedJob
multiregion | job | multiregion { | /Multiregion
strategy | multiregion | strategy { | /Strategy
region | multiregion | region "r" { | /Regions/0
ui | job | ui { | /UI
link | ui | link { | /Links/0
network | group | network { | /Networks/0
dns | network | dns { | /DNS
cni | network | cni { | /CNI
port | network | port "p" { | /DynamicPorts/0
static port | network | port "p" { | /ReservedPorts/0 | static = 80
service | group | service { | /Services/0
weights | service | weights { | /Weights
check_restart | service | check_restart { | /CheckRestart
check | service | check { | /Checks/0
connect | service | connect { | /Connect
sidecar_service | connect | sidecar_service { | /SidecarService
proxy | sidecar_service | proxy { | /Proxy
upstreams | proxy | upstreams { | /Upstreams/0
mesh_gateway | upstreams | mesh_gateway { | /MeshGateway
expose | proxy | expose { | /Expose
path | expose | path { | /Paths/0
transparent_proxy | proxy | transparent_proxy { | /TransparentProxy
sidecar_task | connect | sidecar_task { | /SidecarTask
gateway | connect | gateway { | /Gateway
gateway proxy | gateway | proxy { | /Proxy
envoy_gateway_bind_addresses | gateway proxy | envoy_gateway_bind_addresses "b" { | /EnvoyGatewayBindAddresses/b
ingress | gateway | ingress { | /Ingress
tls | ingress | tls { | /TLS
sds | tls | sds { | /SDS
listener | ingress | listener { | /Listeners/0
ingress service | listener | service { | /Services/0
request_headers | ingress service | request_headers { | /RequestHeaders
terminating | gateway | terminating { | /Terminating
linked service | terminating | service { | /Services/0
template | task | template { | /Templates/0
change_script | template | change_script { | /ChangeScript
wait | template | wait { | /Wait
artifact | task | artifact { | /Artifacts/0
vault | task | vault { | /Vault
consul | group | consul { | /Consul
identity | task | identity { | /Identities/0 | name = "i"
secret | task | secret "s" { | /Secrets/0
action | task | action "x" { | /Actions/0 | command = "c"
schedule | task | schedule { | /Schedule
cron | schedule | cron { | /Cron
resources | task | resources { | /Resources
device | resources | device "gpu" { | /Devices/0
numa | resources | numa { | /NUMA
lifecycle | task | lifecycle { | /Lifecycle | hook = "poststop"
logs | task | logs { | /LogConfig
volume | group | volume "v" { | /Volumes/v
mount_options | volume | mount_options { | /MountOptions
volume_mount | task | volume_mount { | /VolumeMounts/0
csi_plugin | task | csi_plugin { | /CSIPluginConfig
dispatch_payload | task | dispatch_payload { | /DispatchPayload
"#;

/// Context, argument or block with its value, key, and value in JSON.
const ROWS: &str = r#"
job | id = "x" | ID | "x"
job | name = "x" | Name | "x"
job | region = "x" | Region | "x"
job | namespace = "x" | Namespace | "x"
job | type = "batch" | Type | "batch"
job | priority = "70" | Priority | 70
job | all_at_once = "true" | AllAtOnce | true
job | datacenters = ["a", 1] | Datacenters | ["a","1"]
job | node_pool = "x" | NodePool | "x"
job | consul_namespace = "x" | ConsulNamespace | "x"
job | vault_namespace = "x" | VaultNamespace | "x"
job | meta = { "a.b" = 1 } | Meta | {"a.b":"1"}
job | meta { x = true } | Meta | {"x":"true"}
group | count = 3 | Count | 3
group | shutdown_delay = "5s" | ShutdownDelay | 5000000000
group | max_run_duration = "1h" | MaxRunDuration | 3600000000000
group | stop_after_client_disconnect = "1s" | StopAfterClientDisconnect | 1000000000
group | max_client_disconnect = "1s" | MaxClientDisconnect | 1000000000
group | prevent_reschedule_on_lost = true | PreventRescheduleOnLost | true
group | meta = { a = "b" } | Meta | {"a":"b"}
task | driver = "exec" | Driver | "exec"
task | user = "u" | User | "u"
task | leader = true | Leader | true
task | kill_timeout = 10 | KillTimeout | 10
task | kill_signal = "SIGINT" | KillSignal | "SIGINT"
task | shutdown_delay = "2s" | ShutdownDelay | 2000000000
task | kind = "k" | Kind | "k"
task | env { A = 1.5 } | Env | {"A":"1.5"}
task | env = { A = "b" } | Env | {"A":"b"}
task | meta { a = "b" } | Meta | {"a":"b"}
task | config { command = "x" } | Config | {"command":"x"}
constraint | attribute = "${attr.a}" | LTarget | "${attr.a}"
constraint | value = "v" | RTarget | "v"
constraint | operator = "!=" | Operand | "!="
constraint | version = ">= 1" | Operand | "version"
constraint | version = ">= 1" | RTarget | ">= 1"
constraint | semver = ">= 1" | Operand | "semver"
constraint | regexp = "x" | Operand | "regexp"
constraint | set_contains = "x" | Operand | "set_contains"
constraint | distinct_hosts = true | Operand | "distinct_hosts"
constraint | distinct_hosts = true | RTarget | "true"
constraint | distinct_hosts = "false" | RTarget | "false"
constraint | distinct_property = "${meta.a}" | Operand | "distinct_property"
constraint | distinct_property = "${meta.a}" | LTarget | "${meta.a}"
constraint | is_set = "x" | Operand | "="
constraint | is_not_set = "x" | Operand | "="
constraint | set_contains_all = "x" | Operand | "="
constraint | set_contains_any = "x" | Operand | "="
affinity | attribute = "${attr.a}" | LTarget | "${attr.a}"
affinity | value = "v" | RTarget | "v"
affinity | operator = "<" | Operand | "<"
affinity | weight = -100 | Weight | -100
affinity | version = ">= 1" | Operand | "version"
affinity | semver = ">= 1" | Operand | "semver"
affinity | regexp = "x" | Operand | "regexp"
affinity | set_contains = "x" | Operand | "set_contains"
affinity | set_contains_all = "x" | Operand | "set_contains_all"
affinity | set_contains_any = "x" | Operand | "set_contains_any"
spread | attribute = "${attr.a}" | Attribute | "${attr.a}"
spread | weight = 70 | Weight | 70
target | percent = 40 | Percent | 40
target | value = "w" | Value | "w"
update | stagger = "1s" | Stagger | 1000000000
update | max_parallel = 2 | MaxParallel | 2
update | health_check = "manual" | HealthCheck | "manual"
update | min_healthy_time = "1s" | MinHealthyTime | 1000000000
update | healthy_deadline = "1s" | HealthyDeadline | 1000000000
update | progress_deadline = "0s" | ProgressDeadline | 0
update | auto_revert = true | AutoRevert | true
update | canary = 1 | Canary | 1
update | auto_promote = true | AutoPromote | true
migrate | max_parallel = 2 | MaxParallel | 2
migrate | health_check = "task_states" | HealthCheck | "task_states"
migrate | min_healthy_time = "1s" | MinHealthyTime | 1000000000
migrate | healthy_deadline = "1s" | HealthyDeadline | 1000000000
reschedule | attempts = 2 | Attempts | 2
reschedule | interval = "1s" | Interval | 1000000000
reschedule | delay = "1s" | Delay | 1000000000
reschedule | delay_function = "constant" | DelayFunction | "constant"
reschedule | max_delay = "1s" | MaxDelay | 1000000000
reschedule | unlimited = false | Unlimited | false
reschedule in a group | unlimited = true | Unlimited | true
restart | attempts = 2 | Attempts | 2
restart | interval = "1s" | Interval | 1000000000
restart | delay = "1s" | Delay | 1000000000
restart | mode = "delay" | Mode | "delay"
restart | render_templates = true | RenderTemplates | true
disconnect | lost_after = "1s" | LostAfter | 1000000000
disconnect | stop_on_client_after = "1s" | StopOnClientAfter | 1000000000
disconnect | replace = false | Replace | false
disconnect | reconcile = "best_score" | Reconcile | "best_score"
ephemeral_disk | size = 100 | SizeMB | 100
ephemeral_disk | sticky = true | Sticky | true
ephemeral_disk | migrate = true | Migrate | true
scaling | min = 1 | Min | 1
scaling | enabled = false | Enabled | false
scaling | type = "horizontal" | Type | "horizontal"
scaling | policy { a = 1 } | Policy | {"a":1}
scaling of a task | max = 8 | Max | 8 | replace
scaling of a task | min = 1 | Min | 1
scaling of a task | enabled = true | Enabled | true
scaling of a task | type = "vertical_cpu" | Type | "vertical_cpu"
scaling of a task | policy { a = 1 } | Policy | {"a":1}
scaling | max = 8 | Max | 8 | replace
periodic | cron = "@daily" | Spec | "@daily"
periodic | crons = ["@daily"] | Specs | ["@daily"]
periodic | prohibit_overlap = true | ProhibitOverlap | true
periodic | time_zone = "UTC" | TimeZone | "UTC"
periodic | enabled = false | Enabled | false
parameterized | payload = "required" | Payload | "required"
parameterized | meta_required = ["a"] | MetaRequired | ["a"]
parameterized | meta_optional = ["a"] | MetaOptional | ["a"]
strategy | max_parallel = 1 | MaxParallel | 1
strategy | on_failure = "fail_all" | OnFailure | "fail_all"
region | count = 2 | Count | 2
region | datacenters = ["a"] | Datacenters | ["a"]
region | node_pool = "x" | NodePool | "x"
region | meta { a = "b" } | Meta | {"a":"b"}
ui | description = "x" | Description | "x"
link | label = "x" | Label | "x"
link | url = "x" | URL | "x"
network | mode = "bridge" | Mode | "bridge"
network | hostname = "h" | Hostname | "h"
network | mbits = 1 | MBits | 1
network | cidr = "10.0.0.0/8" | CIDR | "10.0.0.0/8"
network | device = "eth0" | Device | "eth0"
network | ip = "10.0.0.1" | IP | "10.0.0.1"
network | reserved_ports "p" { static = 5 } | ReservedPorts | [{"Label":"p","Value":5,"To":0,"HostNetwork":"","IgnoreCollision":false}]
dns | servers = ["1.1.1.1"] | Servers | ["1.1.1.1"]
dns | searches = ["x"] | Searches | ["x"]
dns | options = ["x"] | Options | ["x"]
cni | args = { a = "b" } | Args | {"a":"b"}
port | to = -1 | To | -1
port | host_network = "x" | HostNetwork | "x"
port | ignore_collision = true | IgnoreCollision | true
static port | static = 81 | Value | 81 | replace
service | name = "x" | Name | "x"
service | provider = "nomad" | Provider | "nomad"
service | port = 8080 | PortLabel | "8080"
service | address_mode = "host" | AddressMode | "host"
service | address = "x" | Address | "x"
service | tags = ["a"] | Tags | ["a"]
service | canary_tags = ["a"] | CanaryTags | ["a"]
service | enable_tag_override = true | EnableTagOverride | true
service | task = "t" | TaskName | "t"
service | on_update = "ignore" | OnUpdate | "ignore"
service | meta { a = "b" } | Meta | {"a":"b"}
service | canary_meta { a = "b" } | CanaryMeta | {"a":"b"}
service | tagged_addresses { lan = "b" } | TaggedAddresses | {"lan":"b"}
service | cluster = "x" | Cluster | "x"
service | kind = "api-gateway" | Kind | "api-gateway"
weights | passing = 2 | Passing | 2
weights | warning = 2 | Warning | 2
check_restart | limit = 3 | Limit | 3
check_restart | grace = "1s" | Grace | 1000000000
check_restart | ignore_warnings = true | IgnoreWarnings | true
check | type = "http" | Type | "http"
check | name = "x" | Name | "x"
check | path = "/" | Path | "/"
check | protocol = "https" | Protocol | "https"
check | method = "POST" | Method | "POST"
check | port = "p" | PortLabel | "p"
check | address_mode = "host" | AddressMode | "host"
check | advertise = "x" | Advertise | "x"
check | interval = "1s" | Interval | 1000000000
check | timeout = "1s" | Timeout | 1000000000
check | command = "x" | Command | "x"
check | args = ["x"] | Args | ["x"]
check | header { K = ["v"] } | Header | {"K":["v"]}
check | body = "x" | Body | "x"
check | initial_status = "passing" | InitialStatus | "passing"
check | notes = "x" | Notes | "x"
check | tls_server_name = "x" | TLSServerName | "x"
check | tls_skip_verify = true | TLSSkipVerify | true
check | expose = true | Expose | true
check | task = "t" | TaskName | "t"
check | on_update = "ignore" | OnUpdate | "ignore"
check | success_before_passing = 1 | SuccessBeforePassing | 1
check | failures_before_critical = 1 | FailuresBeforeCritical | 1
check | failures_before_warning = 1 | FailuresBeforeWarning | 1
check | grpc_service = "x" | GRPCService | "x"
check | grpc_use_tls = true | GRPCUseTLS | true
connect | native = true | Native | true
sidecar_service | tags = ["a"] | Tags | ["a"]
sidecar_service | port = "p" | Port | "p"
sidecar_service | disable_default_tcp_check = true | DisableDefaultTCPCheck | true
sidecar_service | meta { a = "b" } | Meta | {"a":"b"}
proxy | local_service_address = "x" | LocalServiceAddress | "x"
proxy | local_service_port = 80 | LocalServicePort | 80
proxy | config { a = 1 } | Config | {"a":1}
path | path = "/x" | Path | "/x"
path | protocol = "http" | Protocol | "http"
path | local_path_port = 80 | LocalPathPort | 80
path | listener_port = "p" | ListenerPort | "p"
upstreams | destination_name = "x" | DestinationName | "x"
upstreams | destination_namespace = "x" | DestinationNamespace | "x"
upstreams | destination_partition = "x" | DestinationPartition | "x"
upstreams | destination_peer = "x" | DestinationPeer | "x"
upstreams | destination_type = "x" | DestinationType | "x"
upstreams | local_bind_port = 80 | LocalBindPort | 80
upstreams | local_bind_address = "x" | LocalBindAddress | "x"
upstreams | local_bind_socket_path = "x" | LocalBindSocketPath | "x"
upstreams | local_bind_socket_mode = "x" | LocalBindSocketMode | "x"
upstreams | datacenter = "x" | Datacenter | "x"
upstreams | config { a = 1 } | Config | {"a":1}
mesh_gateway | mode = "local" | Mode | "local"
transparent_proxy | uid = "1" | UID | "1"
transparent_proxy | outbound_port = 15001 | OutboundPort | 15001
transparent_proxy | exclude_inbound_ports = ["p"] | ExcludeInboundPorts | ["p"]
transparent_proxy | exclude_outbound_ports = [80] | ExcludeOutboundPorts | [80]
transparent_proxy | exclude_outbound_cidrs = ["x"] | ExcludeOutboundCIDRs | ["x"]
transparent_proxy | exclude_uids = ["x"] | ExcludeUIDs | ["x"]
transparent_proxy | no_dns = true | NoDNS | true
sidecar_task | name = "x" | Name | "x"
sidecar_task | driver = "x" | Driver | "x"
sidecar_task | user = "x" | User | "x"
sidecar_task | config { a = 1 } | Config | {"a":1}
sidecar_task | env { A = "b" } | Env | {"A":"b"}
sidecar_task | meta { a = "b" } | Meta | {"a":"b"}
sidecar_task | kill_timeout = "1s" | KillTimeout | 1000000000
sidecar_task | shutdown_delay = "1s" | ShutdownDelay | 1000000000
sidecar_task | kill_signal = "x" | KillSignal | "x"
gateway proxy | connect_timeout = "1s" | ConnectTimeout | 1000000000
gateway proxy | envoy_gateway_bind_tagged_addresses = true | EnvoyGatewayBindTaggedAddresses | true
gateway proxy | envoy_gateway_no_default_bind = true | EnvoyGatewayNoDefaultBind | true
gateway proxy | envoy_dns_discovery_type = "x" | EnvoyDNSDiscoveryType | "x"
gateway proxy | config { a = 1 } | Config | {"a":1}
envoy_gateway_bind_addresses | address = "x" | Address | "x"
envoy_gateway_bind_addresses | port = 80 | Port | 80
tls | enabled = true | Enabled | true
tls | tls_min_version = "x" | TLSMinVersion | "x"
tls | tls_max_version = "x" | TLSMaxVersion | "x"
tls | cipher_suites = ["x"] | CipherSuites | ["x"]
sds | cluster_name = "x" | ClusterName | "x"
sds | cert_resource = "x" | CertResource | "x"
listener | port = 80 | Port | 80
listener | protocol = "http" | Protocol | "http"
ingress service | name = "x" | Name | "x"
ingress service | hosts = ["x"] | Hosts | ["x"]
ingress service | max_connections = 1 | MaxConnections | 1
ingress service | max_pending_requests = 1 | MaxPendingRequests | 1
ingress service | max_concurrent_requests = 1 | MaxConcurrentRequests | 1
request_headers | add { a = "b" } | Add | {"a":"b"}
request_headers | set { a = "b" } | Set | {"a":"b"}
request_headers | remove = ["x"] | Remove | ["x"]
linked service | name = "x" | Name | "x"
linked service | ca_file = "x" | CAFile | "x"
linked service | cert_file = "x" | CertFile | "x"
linked service | key_file = "x" | KeyFile | "x"
linked service | sni = "x" | SNI | "x"
gateway | mesh { } | Mesh | {}
template | source = "x" | SourcePath | "x"
template | data = "x" | EmbeddedTmpl | "x"
template | destination = "x" | DestPath | "x"
template | change_mode = "noop" | ChangeMode | "noop"
template | change_signal = "SIGHUP" | ChangeSignal | "SIGHUP"
template | once = true | Once | true
template | splay = "1s" | Splay | 1000000000
template | perms = "0600" | Perms | "0600"
template | uid = -1 | Uid | -1
template | gid = 5 | Gid | 5
template | left_delimiter = "<" | LeftDelim | "<"
template | right_delimiter = ">" | RightDelim | ">"
template | env = true | Envvars | true
template | error_on_missing_key = true | ErrMissingKey | true
template | vault_grace = "1s" | VaultGrace | 1000000000
change_script | command = "x" | Command | "x"
change_script | args = ["x"] | Args | ["x"]
change_script | timeout = "1s" | Timeout | 1000000000
change_script | fail_on_error = true | FailOnError | true
change_script | run_on_first_render = true | RunOnFirstRender | true
wait | min = "1s" | Min | 1000000000
wait | max = "1s" | Max | 1000000000
artifact | source = "x" | GetterSource | "x"
artifact | destination = "x" | RelativeDest | "x"
artifact | mode = "file" | GetterMode | "file"
artifact | options { depth = 1 } | GetterOptions | {"depth":"1"}
artifact | headers { a = "b" } | GetterHeaders | {"a":"b"}
artifact | insecure = true | GetterInsecure | true
artifact | chown = true | Chown | true
vault | role = "x" | Role | "x"
vault | policies = ["x"] | Policies | ["x"]
vault | namespace = "x" | Namespace | "x"
vault | cluster = "x" | Cluster | "x"
vault | env = false | Env | false
vault | disable_file = true | DisableFile | true
vault | change_mode = "noop" | ChangeMode | "noop"
vault | change_signal = "SIGHUP" | ChangeSignal | "SIGHUP"
vault | allow_token_expiration = true | AllowTokenExpiration | true
consul | namespace = "x" | Namespace | "x"
consul | cluster = "x" | Cluster | "x"
consul | partition = "x" | Partition | "x"
identity | name = "j" | Name | "j" | replace
identity | aud = ["x"] | Audience | ["x"]
identity | change_mode = "restart" | ChangeMode | "restart"
identity | change_signal = "SIGHUP" | ChangeSignal | "SIGHUP"
identity | env = true | Env | true
identity | file = true | File | true
identity | filepath = "x" | Filepath | "x"
identity | service_name = "x" | ServiceName | "x"
identity | ttl = "1h" | TTL | 3600000000000
identity | extra_claims = ["x"] | ExtraClaims | ["x"]
secret | provider = "nomad" | Provider | "nomad"
secret | path = "x" | Path | "x"
secret | config { namespace = "x" } | Config | {"namespace":"x"}
secret | env { A = "b" } | Env | {"A":"b"}
action | command = "x" | Command | "x" | replace
action | args = ["x"] | Args | ["x"]
cron | start = "x" | Start | "x"
cron | end = "x" | End | "x"
cron | timezone = "x" | Timezone | "x"
resources | cpu = "200" | CPU | 200
resources | cores = 2 | Cores | 2
resources | memory = 64 | MemoryMB | 64
resources | memory_max = -1 | MemoryMaxMB | -1
resources | secrets = 2 | SecretsMB | 2
resources | iops = 1 | IOPS | 1
resources | disk = 1 | DiskMB | 1
device | count = 2 | Count | 2
numa | affinity = "prefer" | Affinity | "prefer"
numa | devices = ["x"] | Devices | ["x"]
lifecycle | hook = "prestart" | Hook | "prestart" | replace
lifecycle | sidecar = true | Sidecar | true
logs | max_files = 2 | MaxFiles | 2
logs | max_file_size = 2 | MaxFileSizeMB | 2
logs | disabled = true | Disabled | true
logs | enabled = false | Enabled | false
volume | type = "csi" | Type | "csi"
volume | source = "x" | Source | "x"
volume | read_only = true | ReadOnly | true
volume | sticky = true | Sticky | true
volume | access_mode = "x" | AccessMode | "x"
volume | attachment_mode = "x" | AttachmentMode | "x"
volume | per_alloc = true | PerAlloc | true
volume | broken_mount = "remount" | BrokenMount | "remount"
volume | user = "x" | User | "x"
volume | group = "x" | Group | "x"
volume | mode = "0770" | Mode | "0770"
mount_options | fs_type = "ext4" | FSType | "ext4"
mount_options | mount_flags = ["x"] | MountFlags | ["x"]
volume_mount | volume = "v" | Volume | "v"
volume_mount | destination = "/d" | Destination | "/d"
volume_mount | read_only = true | ReadOnly | true
volume_mount | propagation_mode = "private" | PropagationMode | "private"
volume_mount | selinux_label = "Z" | SELinuxLabel | "Z"
csi_plugin | id = "p" | ID | "p"
csi_plugin | type = "node" | Type | "node"
csi_plugin | mount_dir = "/c" | MountDir | "/c"
csi_plugin | stage_publish_base_dir = "/s" | StagePublishBaseDir | "/s"
csi_plugin | health_timeout = "1s" | HealthTimeout | 1000000000
dispatch_payload | file = "x" | File | "x"
"#;

struct Context {
    /// The opening lines of this block and of its outer blocks.
    open: String,
    /// The number of open blocks.
    depth: usize,
    pointer: String,
    /// The text that the block requires in addition to the tested argument.
    needs: String,
}

fn fields(line: &str) -> Vec<&str> {
    line.split(" | ").map(|part| part.trim().trim_end_matches('|').trim()).collect()
}

fn contexts() -> HashMap<&'static str, Context> {
    let mut out: HashMap<&'static str, Context> = HashMap::new();
    for line in CONTEXTS.lines().filter(|l| !l.is_empty()) {
        let mut parts = line.split(" | ").map(str::trim);
        let name = parts.next().unwrap();
        let outer = parts.next().unwrap().trim_start_matches("| ").trim_start_matches('|');
        let mut next = || parts.next().unwrap_or_default().trim_matches('|').trim();
        let (open, pointer, needs) =
            if name == "job" { ("job \"a\" {", "", "") } else { (next(), next(), next()) };
        let around = out.get(outer);
        let context = Context {
            open: around.map_or(String::new(), |o| format!("{}{}\n", o.open, o.needs)) + open + "\n",
            depth: around.map_or(0, |o| o.depth) + 1,
            pointer: around.map_or(String::new(), |o| o.pointer.clone()) + pointer,
            needs: needs.to_owned(),
        };
        out.insert(name, context);
    }
    out
}

#[test]
fn every_argument_has_its_key() {
    let contexts = contexts();
    let mut wrong = Vec::new();
    for line in ROWS.lines().filter(|l| !l.is_empty()) {
        let parts = fields(line);
        let [context, text, key, want, rest @ ..] = parts.as_slice() else { panic!("{line}") };
        let context = contexts.get(context).unwrap_or_else(|| panic!("{line}"));
        let needs = if rest.is_empty() { context.needs.as_str() } else { "" };
        let file = format!("{}{needs}\n{text}\n{}", context.open, "}\n".repeat(context.depth));
        let want: Value = serde_json::from_str(want).unwrap_or_else(|e| panic!("{line}: {e}"));
        match read(&file) {
            Err(found) => wrong.push(format!("{line}: {found}")),
            Ok((job, _)) => {
                let have = job.pointer(&format!("{}/{key}", context.pointer));
                if have != Some(&want) {
                    wrong.push(format!("{line}: have {have:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that every argument of every table has a row above.
#[test]
fn no_argument_is_without_a_row() {
    fn walk(
        schema: &'static Schema,
        seen: &mut Vec<*const Schema>,
        out: &mut BTreeSet<(&'static str, &'static str)>,
    ) {
        if seen.contains(&std::ptr::from_ref(schema)) {
            return;
        }
        seen.push(schema);
        out.extend(schema.attributes.iter().map(|a| (schema.name, a.name)));
        for block in schema.blocks {
            match block.content {
                Content::Schema(inner) => walk(inner, seen, out),
                _ => drop(out.insert((schema.name, block.name))),
            }
        }
    }
    let mut expected = BTreeSet::new();
    walk(&JOB, &mut Vec::new(), &mut expected);
    let rows: BTreeSet<(String, &str)> = ROWS
        .lines()
        .filter(|l| !l.is_empty())
        .map(|line| {
            let parts = fields(line);
            let block = match parts[0] {
                "request_headers" => "headers".to_owned(),
                name => name
                    .split(" in ")
                    .next()
                    .unwrap()
                    .split(" of ")
                    .next()
                    .unwrap()
                    .rsplit(' ')
                    .next()
                    .unwrap()
                    .to_owned(),
            };
            (block, parts[1].split([' ', '=']).next().unwrap())
        })
        .collect();
    let missing: Vec<_> = expected.iter().filter(|(b, a)| !rows.contains(&((*b).to_owned(), *a))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Checks that every argument has its documentation.
#[test]
fn everything_is_described() {
    fn walk(schema: &'static Schema, seen: &mut Vec<*const Schema>, out: &mut Vec<String>) {
        if seen.contains(&std::ptr::from_ref(schema)) {
            return;
        }
        seen.push(schema);
        for a in schema.attributes {
            if a.doc.is_empty() || !a.doc.ends_with('.') {
                out.push(format!("{}.{}", schema.name, a.name));
            }
        }
        for block in schema.blocks {
            if block.doc.is_empty() || !block.doc.ends_with('.') {
                out.push(format!("{}.{}", schema.name, block.name));
            }
            if let Content::Schema(inner) = block.content {
                walk(inner, seen, out);
            }
        }
    }
    let mut missing = Vec::new();
    walk(&JOB, &mut Vec::new(), &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}
