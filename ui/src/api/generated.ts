// The types of the API, made from the Rust types by `cargo xtask ui`. Changes belong there, and in xtask/src/ui/types.rs,
// which lists the types.

export interface Action {
  Name: string | null;
  Command: string | null;
  Args: string[] | null;
}

export interface Affinity {
  LTarget: string;
  RTarget: string;
  Operand: string;
  Weight: number;
}

export interface AllocDeploymentStatus {
  Healthy: boolean | null;
  Timestamp: string | null;
  Canary: boolean;
  ModifyIndex: number;
}

export interface AllocListStub {
  ID: string;
  EvalID: string;
  Name: string;
  Namespace: string;
  NodeID: string;
  NodeName: string;
  JobID: string;
  JobType: string;
  JobVersion: number;
  TaskGroup: string;
  AllocatedResources?: AllocatedResources | null;
  DesiredStatus: DesiredStatus;
  DesiredDescription: string;
  ClientStatus: ClientStatus;
  ClientDescription: string;
  DesiredTransition: DesiredTransition;
  TaskStates: Record<string, TaskState> | null;
  DeploymentStatus: AllocDeploymentStatus | null;
  FollowupEvalID: string;
  NextAllocation: string;
  RescheduleTracker: RescheduleTracker | null;
  PreemptedAllocations: string[] | null;
  PreemptedByAllocation: string;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface AllocMetric {
  NodesEvaluated: number;
  NodesFiltered: number;
  NodesInPool: number;
  NodePool: string;
  NodesAvailable: Record<string, number> | null;
  ClassFiltered: Record<string, number> | null;
  ConstraintFiltered: Record<string, number> | null;
  NodesExhausted: number;
  ClassExhausted: Record<string, number> | null;
  DimensionExhausted: Record<string, number> | null;
  QuotaExhausted: string[] | null;
  ResourcesExhausted: Record<string, Resources> | null;
  Scores: Record<string, number> | null;
  ScoreMetaData: NodeScore[] | null;
  AllocationTime: number;
  CoalescedFailures: number;
}

export interface AllocStateChange {
  Field: number;
  Value: string;
  Time: string | null;
}

export interface AllocatedCpu {
  CpuShares: number;
  ReservedCores: number[] | null;
}

export interface AllocatedDevice {
  Vendor: string;
  Type: string;
  Name: string;
  DeviceIDs: string[] | null;
}

export interface AllocatedMemory {
  MemoryMB: number;
  MemoryMaxMB: number;
}

export interface AllocatedPort {
  Label: string;
  Value: number;
  To: number;
  HostIP: string;
  IgnoreCollision: boolean;
}

export interface AllocatedResources {
  Tasks: Record<string, AllocatedTaskResources>;
  TaskLifecycles: Record<string, Lifecycle | null>;
  Shared: AllocatedSharedResources;
}

export interface AllocatedSharedResources {
  Networks: Network[] | null;
  DiskMB: number;
  Ports: AllocatedPort[] | null;
}

export interface AllocatedTaskResources {
  Cpu: AllocatedCpu;
  Memory: AllocatedMemory;
  Networks: Network[] | null;
  Devices: AllocatedDevice[] | null;
}

export interface Allocation {
  ID?: string;
  Namespace?: string;
  EvalID?: string;
  Name?: string;
  NodeID?: string;
  NodeName?: string;
  JobID?: string;
  Job?: Job | null;
  TaskGroup?: string;
  Resources?: Resources | null;
  SharedResources?: Resources | null;
  TaskResources?: Record<string, Resources>;
  AllocatedResources?: AllocatedResources | null;
  Metrics?: AllocMetric | null;
  DesiredStatus: DesiredStatus;
  DesiredDescription?: string;
  DesiredTransition?: DesiredTransition;
  ClientStatus: ClientStatus;
  ClientDescription?: string;
  TaskStates?: Record<string, TaskState>;
  AllocStates?: AllocStateChange[];
  PreviousAllocation?: string;
  NextAllocation?: string;
  DeploymentID?: string;
  DeploymentStatus?: AllocDeploymentStatus | null;
  RescheduleTracker?: RescheduleTracker | null;
  NetworkStatus?: NetworkStatus | null;
  FollowupEvalID?: string;
  PreemptedAllocations?: string[];
  PreemptedByAllocation?: string;
  SigningKeyID?: string;
  CreateIndex: number;
  ModifyIndex: number;
  AllocModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface Artifact {
  GetterSource: string | null;
  GetterOptions: Record<string, string> | null;
  GetterHeaders: Record<string, string> | null;
  GetterMode: string | null;
  GetterInsecure: boolean | null;
  RelativeDest: string | null;
  Chown: boolean;
}

export interface AttentionItem {
  Kind: string;
  ID: string;
  Name: string;
  Namespace: string;
  Severity: string;
  Reason: string;
  Since: number;
  DetailID: string;
}

export interface BlockedJob {
  VolumeID: string;
  Namespace: string;
  JobID: string;
  EvalID: string;
  Since: number;
}

export type BrokenMount = 'hold' | 'restart' | 'remount';

export interface CallInFlight {
  Call: string;
  NodeID: string;
  AllocID: string;
  Since: number;
  RunningFor: number;
}

export interface Capabilities {
  Management: boolean;
  Namespaces: Record<string, string[]>;
  Variables: Record<string, VariableRule[]>;
  Node: string;
  Agent: string;
  Operator: string;
  Plugin: string;
}

export interface Capability {
  AttachmentMode: string;
  AccessMode: string;
}

export interface Capacity {
  wanted_min: number;
  wanted_max: number;
  accepted: number;
  actual: number;
}

export interface ChangeScript {
  Command: string | null;
  Args: string[] | null;
  Timeout: number | null;
  FailOnError: boolean | null;
  RunOnFirstRender: boolean | null;
}

export interface CheckRestartSpec {
  Limit: number | null;
  Grace: number | null;
  IgnoreWarnings: boolean | null;
}

export interface CheckSpec {
  Name: string | null;
  Type: string | null;
  Command: string | null;
  Args: string[] | null;
  Path: string | null;
  Protocol: string | null;
  PortLabel: string | null;
  Expose: boolean | null;
  AddressMode: string | null;
  Interval: number | null;
  Timeout: number | null;
  InitialStatus: string | null;
  Notes: string | null;
  TLSServerName: string | null;
  TLSSkipVerify: boolean | null;
  Header: Record<string, string[]> | null;
  Method: string | null;
  CheckRestart: CheckRestartSpec | null;
  GRPCService: string | null;
  GRPCUseTLS: boolean | null;
  TaskName: string | null;
  SuccessBeforePassing: number | null;
  FailuresBeforeCritical: number | null;
  FailuresBeforeWarning: number | null;
  Body: string | null;
  OnUpdate: string | null;
}

export interface ChildrenSummary {
  Pending: number;
  Running: number;
  Dead: number;
}

export interface ClaimExplain {
  AllocID: string;
  JobID: string;
  TaskGroup: string;
  NodeID: string;
  ExternalNodeID: string;
  Mode: ClaimMode;
  AccessMode: string;
  AttachmentMode: string;
  Phase: ClaimPhase;
  Since: number;
  WaitsFor: string;
  Holder: string;
  Tries: number;
  LastError: string;
  NextTry: number;
  FenceUntil: number;
  FenceLeft: number;
  NodeOff?: ConfirmedOff | null;
  History: ClaimTransition[] | null;
}

export type ClaimMode = 'read' | 'write';

export type ClaimPhase = 'reserved' | 'attaching' | 'attached' | 'mounted' | 'releasing' | 'unpublished' | 'unstaged' | 'detaching' | 'fencing' | 'gone';

export interface ClaimRow {
  VolumeID: string;
  Namespace: string;
  PluginID: string;
  AllocID: string;
  JobID: string;
  TaskGroup: string;
  NodeID: string;
  Mode: ClaimMode;
  Phase: ClaimPhase;
  Since: number;
  WaitsFor: string;
  Tries: number;
  LastError: string;
  NextTry: number;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface ClaimTransition {
  At: number;
  Phase: ClaimPhase;
  Note: string;
}

export type ClientStatus = 'pending' | 'running' | 'complete' | 'failed' | 'lost' | 'unknown';

export interface Cni {
  Args: Record<string, string> | null;
}

export interface ConfirmedOff {
  AccessorID: string;
  Name: string;
  At: number;
}

export interface Constraint {
  LTarget: string;
  RTarget: string;
  Operand: string;
}

export interface Consul {
  Namespace: string | null;
  Cluster: string | null;
  Partition: string | null;
}

export interface CsiControllerInfo {
  SupportsCreateDelete: boolean;
  SupportsAttachDetach: boolean;
  SupportsListVolumes: boolean;
  SupportsGetCapacity: boolean;
  SupportsCreateDeleteSnapshot: boolean;
  SupportsListSnapshots: boolean;
  SupportsClone: boolean;
  SupportsReadOnlyAttach: boolean;
  SupportsExpand: boolean;
  SupportsListVolumesAttachedNodes: boolean;
  SupportsCondition: boolean;
  SupportsGet: boolean;
}

export interface CsiInfo {
  PluginID: string;
  AllocID: string;
  Healthy: boolean;
  HealthDescription: string;
  UpdateTime: string | null;
  Provider: string;
  ProviderVersion: string;
  RequiresControllerPlugin: boolean;
  RequiresTopologies: boolean;
  ControllerInfo?: CsiControllerInfo | null;
  NodeInfo?: CsiNodeInfo | null;
}

export interface CsiNodeInfo {
  ID: string;
  MaxVolumes: number;
  AccessibleTopology: Topology | null;
  RequiresNodeStageVolume: boolean;
  SupportsStats: boolean;
  SupportsExpand: boolean;
  SupportsCondition: boolean;
  CaravanSupportsMountGroup: boolean;
}

export interface CsiPluginConfig {
  ID: string;
  Type: CsiPluginType;
  MountDir: string;
  StagePublishBaseDir: string;
  HealthTimeout: number;
}

export type CsiPluginType = 'node' | 'controller' | 'monolith';

export interface CsiVolume {
  ID: string;
  Name: string;
  ExternalID: string;
  Namespace: string;
  RequestedTopologies: TopologyRequest | null;
  Topologies: Topology[];
  AccessMode: string;
  AttachmentMode: string;
  MountOptions: MountOptions | null;
  Secrets: Record<string, string> | null;
  Parameters: Record<string, string>;
  Context: Record<string, string>;
  Capacity: number;
  RequestedCapacityMin: number;
  RequestedCapacityMax: number;
  RequestedCapabilities: Capability[] | null;
  CloneID: string;
  SnapshotID: string;
  ReadAllocs: Record<string, unknown>;
  WriteAllocs: Record<string, unknown>;
  Allocations: AllocListStub[];
  Schedulable: boolean;
  PluginID: string;
  Provider: string;
  ProviderVersion: string;
  ControllerRequired: boolean;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
  ResourceExhausted: string | null;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
  CaravanSharedStorage?: boolean;
}

export interface CsiVolumeStub {
  ID: string;
  Namespace: string;
  Name: string;
  ExternalID: string;
  Topologies: Topology[];
  AccessMode: string;
  AttachmentMode: string;
  CurrentReaders: number;
  CurrentWriters: number;
  Schedulable: boolean;
  PluginID: string;
  Provider: string;
  ControllerRequired: boolean;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
  ResourceExhausted: string | null;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface Deployment {
  ID: string;
  Namespace: string;
  JobID: string;
  JobVersion: number;
  JobModifyIndex: number;
  JobSpecModifyIndex: number;
  JobCreateIndex: number;
  IsMultiregion: boolean;
  TaskGroups: Record<string, DeploymentState> | null;
  Status: DeploymentStatus;
  StatusDescription: string;
  EvalPriority: number;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface DeploymentState {
  AutoRevert: boolean;
  AutoPromote: boolean;
  ProgressDeadline: number;
  RequireProgressBy: string | null;
  Promoted: boolean;
  PlacedCanaries: string[] | null;
  DesiredCanaries: number;
  DesiredTotal: number;
  PlacedAllocs: number;
  HealthyAllocs: number;
  UnhealthyAllocs: number;
}

export type DeploymentStatus = 'running' | 'paused' | 'initializing' | 'pending' | 'blocked' | 'unblocking' | 'successful' | 'failed' | 'cancelled';

export type DesiredStatus = 'run' | 'stop' | 'evict';

export interface DesiredTransition {
  Migrate: boolean | null;
  Reschedule: boolean | null;
  ForceReschedule: boolean | null;
  NoShutdownDelay: boolean | null;
  MigrateDisablePlacement: boolean | null;
}

export interface DesiredUpdates {
  Ignore: number;
  Place: number;
  Migrate: number;
  Stop: number;
  InPlaceUpdate: number;
  DestructiveUpdate: number;
  Canary: number;
  Preemptions: number;
  Disconnect: number;
  Reconnect: number;
  RescheduleNow: number;
  RescheduleLater: number;
}

export interface DeviceAttribute {
  Float: number | null;
  Int: number | null;
  String: string | null;
  Bool: boolean | null;
  Unit: string;
}

export interface DeviceGroup {
  Vendor: string;
  Type: string;
  Name: string;
  Instances: DeviceInstance[] | null;
  Attributes: Record<string, DeviceAttribute> | null;
}

export interface DeviceInstance {
  ID: string;
  Healthy: boolean;
  HealthDescription: string;
  Locality: DeviceLocality | null;
}

export interface DeviceLocality {
  PciBusID: string;
}

export interface DisconnectStrategy {
  LostAfter: number;
  StopOnClientAfter: number | null;
  Replace: boolean | null;
  Reconcile: string;
}

export interface DispatchPayload {
  File: string | null;
}

export interface Dns {
  Servers: string[] | null;
  Searches: string[] | null;
  Options: string[] | null;
}

export interface DrainStrategy {
  Deadline: number;
  IgnoreSystemJobs: boolean;
  ForceDeadline: string | null;
  StartedAt: string | null;
}

export interface DriverInfo {
  Attributes: Record<string, string> | null;
  Detected: boolean;
  Healthy: boolean;
  HealthDescription: string;
  UpdateTime: string | null;
}

export type Eligibility = 'eligible' | 'ineligible';

export interface EphemeralDisk {
  Sticky: boolean;
  SizeMB: number;
  Migrate: boolean;
}

export type EvalStatus = 'pending' | 'blocked' | 'complete' | 'failed' | 'canceled';

export interface EvalStub {
  ID: string;
  Namespace: string;
  Priority: number;
  Type: string;
  TriggeredBy: Trigger;
  JobID: string;
  NodeID: string;
  DeploymentID: string;
  Status: EvalStatus;
  StatusDescription: string;
  WaitUntil: string | null;
  NextEval: string;
  PreviousEval: string;
  BlockedEval: string;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface Evaluation {
  ID?: string;
  Namespace?: string;
  Priority?: number;
  Type?: string;
  TriggeredBy: Trigger;
  JobID?: string;
  JobModifyIndex?: number;
  NodeID?: string;
  NodeModifyIndex?: number;
  DeploymentID?: string;
  Status: EvalStatus;
  StatusDescription?: string;
  Wait?: number;
  WaitUntil?: string | null;
  NextEval?: string;
  PreviousEval?: string;
  BlockedEval?: string;
  RelatedEvals?: EvalStub[];
  FailedTGAllocs?: Record<string, AllocMetric>;
  PlanAnnotations?: PlanAnnotations | null;
  ClassEligibility?: Record<string, boolean>;
  QuotaLimitReached?: string;
  MissingNonNodeResources?: string[];
  EscapedComputedClass?: boolean;
  AnnotatePlan?: boolean;
  QueuedAllocations?: Record<string, number>;
  LeaderACL?: string;
  SnapshotIndex?: number;
  CreateIndex?: number;
  ModifyIndex?: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface GroupSummary {
  Queued: number;
  Complete: number;
  Failed: number;
  Running: number;
  Starting: number;
  Lost: number;
  Unknown: number;
}

export type HostAccess = 'any' | 'created';

export interface HostNetwork {
  Name: string;
  CIDR: string;
  Interface: string;
  ReservedPorts: string;
}

export interface HostVolume {
  Namespace: string;
  ID: string;
  Name: string;
  PluginID: string;
  NodePool: string;
  NodeID: string;
  Constraints?: Constraint[] | null;
  RequestedCapacityMinBytes: number;
  RequestedCapacityMaxBytes: number;
  CapacityBytes: number;
  RequestedCapabilities: Capability[] | null;
  Parameters?: Record<string, string> | null;
  HostPath: string;
  State: HostVolumeState;
  CreateIndex: number;
  CreateTime: number;
  ModifyIndex: number;
  ModifyTime: number;
  Allocations?: AllocListStub[] | null;
  Intent?: HostVolumeIntent | null;
  LastError?: string | null;
}

export interface HostVolumeExplain {
  ID: string;
  Name: string;
  Namespace: string;
  NodeID: string;
  NodeName: string;
  State: string;
  Summary: string;
  Users: HostVolumeUser[];
}

export interface HostVolumeHolder {
  JobID: string;
  TaskGroup: string;
  AllocID: string;
}

export interface HostVolumeInfo {
  Name: string;
  Path: string;
  ReadOnly: boolean;
  ID: string;
}

export type HostVolumeIntent = 'none' | 'create' | 'delete';

export interface HostVolumeRow {
  Namespace: string;
  ID: string;
  Name: string;
  PluginID: string;
  NodePool: string;
  NodeID: string;
  NodeName: string;
  CapacityBytes: number;
  State: HostVolumeState;
  Configured: boolean;
  ReadOnly: boolean;
  Holders: HostVolumeHolder[];
  CreateIndex: number;
  CreateTime: number;
  ModifyIndex: number;
  ModifyTime: number;
}

export type HostVolumeState = 'pending' | 'ready' | 'unavailable';

export interface HostVolumeStub {
  Namespace: string;
  ID: string;
  Name: string;
  PluginID: string;
  NodePool: string;
  NodeID: string;
  CapacityBytes: number;
  State: HostVolumeState;
  CreateIndex: number;
  CreateTime: number;
  ModifyIndex: number;
  ModifyTime: number;
}

export interface HostVolumeUser {
  AllocID: string;
  JobID: string;
  TaskGroup: string;
  ClientStatus: string;
}

export interface IdentitySpec {
  Name: string | null;
  Audience: string[] | null;
  ChangeMode: string | null;
  ChangeSignal: string | null;
  Env: boolean | null;
  File: boolean | null;
  Filepath: string | null;
  ServiceName: string | null;
  TTL: number | null;
  ExtraClaims: string[] | null;
}

export interface Job {
  Stop: boolean;
  Region: string;
  Namespace: string;
  ID: string;
  ParentID: string;
  Name: string;
  Type: JobType;
  Priority: number;
  AllAtOnce: boolean;
  Datacenters: string[] | null;
  NodePool: string;
  Constraints: Constraint[] | null;
  Affinities: Affinity[] | null;
  Spreads: Spread[] | null;
  TaskGroups: TaskGroup[] | null;
  Update: UpdateStrategy;
  Multiregion: unknown;
  Periodic: Periodic | null;
  ParameterizedJob: Parameterized | null;
  Dispatched: boolean;
  DispatchIdempotencyToken: string;
  Payload: string | null;
  Meta: Record<string, string> | null;
  ConsulNamespace: string;
  VaultNamespace: string;
  NomadTokenID: string;
  Status: JobStatus;
  StatusDescription: string;
  Stable: boolean;
  Version: number;
  SubmitTime: number;
  CreateIndex: number;
  ModifyIndex: number;
  JobModifyIndex: number;
  UI: JobUi | null;
  VersionTag: VersionTag | null;
}

export interface JobListStub {
  ID: string;
  ParentID: string;
  Name: string;
  Namespace: string;
  Datacenters: string[] | null;
  NodePool: string;
  Multiregion: unknown;
  Type: JobType;
  Priority: number;
  Periodic: boolean;
  ParameterizedJob: boolean;
  Stop: boolean;
  Status: JobStatus;
  StatusDescription: string;
  JobSummary: JobSummary | null;
  CreateIndex: number;
  ModifyIndex: number;
  JobModifyIndex: number;
  SubmitTime: number;
  Meta?: Record<string, string> | null;
}

export type JobStatus = 'pending' | 'running' | 'dead';

export interface JobStatusAlloc {
  ID: string;
  Group: string;
  ClientStatus: ClientStatus;
  NodeID: string;
  JobVersion: number;
  FollowupEvalID: string;
  HasPausedTask: boolean;
}

export interface JobStatusDeployment {
  ID: string;
  IsActive: boolean;
  JobVersion: number;
  Status: DeploymentStatus;
  StatusDescription: string;
  AllAutoPromote: boolean;
  RequiresPromotion: boolean;
}

export interface JobStatusRow {
  ID: string;
  Namespace: string;
  Name: string;
  Type: JobType;
  NodePool: string;
  Datacenters: string[] | null;
  Priority: number;
  Version: number;
  SubmitTime: number;
  ModifyIndex: number;
  Allocs: JobStatusAlloc[] | null;
  CaravanAllocs: Record<string, number> | null;
  GroupCountSum: number;
  ChildStatuses: string[] | null;
  ParentID: string;
  LatestDeployment: JobStatusDeployment | null;
  Stop: boolean;
  Status: JobStatus;
}

export interface JobSummary {
  JobID: string;
  Namespace: string;
  Summary: Record<string, GroupSummary>;
  Children: ChildrenSummary;
  CreateIndex: number;
  ModifyIndex: number;
}

export type JobType = 'service' | 'batch' | 'system' | 'sysbatch';

export interface JobUi {
  Description: string | null;
  Links: JobUiLink[] | null;
}

export interface JobUiLink {
  Label: string | null;
  URL: string | null;
}

export interface Lane {
  Lane: string;
  Running: number;
  Waiting: number;
  Limit: number;
}

export interface LastDrain {
  StartedAt: string | null;
  UpdatedAt: string | null;
  Status: string;
  AccessorID: string;
  Meta: Record<string, string> | null;
}

export interface LeftMount {
  PluginID: string;
  AllocID: string;
  Path: string;
  FsType: string;
  Source: string;
  Reason: string;
}

export interface Lifecycle {
  Hook: string;
  Sidecar: boolean;
}

export interface LogConfig {
  MaxFiles: number;
  MaxFileSizeMB: number;
  Disabled: boolean;
}

export interface Member {
  Name: string;
  Addr: string;
  Port: number;
  Tags: Record<string, string> | null;
  Status: string;
  ProtocolMin: number;
  ProtocolMax: number;
  ProtocolCur: number;
  DelegateMin: number;
  DelegateMax: number;
  DelegateCur: number;
}

export interface MigrateStrategy {
  MaxParallel: number;
  HealthCheck: string;
  MinHealthyTime: number;
  HealthyDeadline: number;
}

export interface MountOptions {
  FSType: string;
  MountFlags: string[] | null;
}

export interface Needs {
  Failed: number;
  Waiting: number;
  Fencing: number;
  Changing: number;
  Rest: number;
}

export interface Network {
  Mode: string;
  Device: string;
  CIDR: string;
  IP: string;
  Hostname: string;
  MBits: number;
  DNS: Dns | null;
  ReservedPorts: Port[];
  DynamicPorts: Port[];
  CNI: Cni | null;
}

export interface NetworkStatus {
  InterfaceName: string;
  Address: string;
  AddressIPv6: string;
  DNS: Dns | null;
}

export interface Node {
  ID: string;
  SecretID: string;
  Datacenter: string;
  Name: string;
  CgroupParent: string;
  HTTPAddr: string;
  TLSEnabled: boolean;
  Attributes: Record<string, string> | null;
  NodeResources: NodeResources;
  ReservedResources: ReservedResources;
  Links: Record<string, string>;
  Meta: Record<string, string>;
  NodeClass: string;
  NodePool: string;
  ComputedClass: string;
  DrainStrategy: DrainStrategy | null;
  SchedulingEligibility: Eligibility;
  Status: NodeStatus;
  StatusDescription: string;
  IdentitySigningKeyID: string;
  StatusUpdatedAt: number;
  Events: NodeEvent[] | null;
  Drivers: Record<string, DriverInfo>;
  CSIControllerPlugins: Record<string, CsiInfo>;
  CSINodePlugins: Record<string, CsiInfo>;
  CaravanLeftMounts?: LeftMount[];
  HostVolumes: Record<string, HostVolumeInfo>;
  GCVolumesOnNodeGC: boolean;
  HostNetworks: Record<string, HostNetwork> | null;
  LastDrain: LastDrain | null;
  NodeMaxAllocs: number;
  LastMissedHeartbeatIndex: number;
  LastAllocUpdateIndex: number;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface NodeAddress {
  Family: string;
  Alias: string;
  Address: string;
  ReservedPorts: string;
  Gateway: string;
}

export interface NodeColumns {
  ID: string[];
  Name: string[];
  Datacenter: string[];
  NodePool: string[];
  NodeClass: string[];
  Status: string[];
  Draining: boolean[];
  Eligible: boolean[];
  Version: string[];
  Meta: string[] | null;
  MetaKeys: string[];
  CPU: number[];
  CPUUsed: number[];
  MemoryMB: number[];
  MemoryMBUsed: number[];
  DiskMB: number[];
  DiskMBUsed: number[];
  Allocations: number[];
  States: Record<string, number>[];
  Total: number;
}

export interface NodeCpu {
  CpuShares: number;
  TotalCpuCores: number;
  ReservableCpuCores: number[] | null;
}

export interface NodeDisk {
  DiskMB: number;
}

export interface NodeEvent {
  Message: string;
  Subsystem: string;
  Details: Record<string, string> | null;
  Timestamp: string | null;
  CreateIndex: number;
}

export interface NodeListStub {
  Address: string;
  ID: string;
  Attributes?: Record<string, string> | null;
  Datacenter: string;
  Name: string;
  NodePool: string;
  NodeClass: string;
  Version: string;
  Drain: boolean;
  SchedulingEligibility: Eligibility;
  Status: NodeStatus;
  StatusDescription: string;
  Drivers: Record<string, DriverInfo>;
  HostVolumes: Record<string, HostVolumeInfo>;
  NodeResources?: NodeResources | null;
  ReservedResources?: ReservedResources | null;
  LastDrain: LastDrain | null;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface NodeMemory {
  MemoryMB: number;
}

export interface NodeNetwork {
  Mode: string;
  Device: string;
  MacAddress: string;
  Speed: number;
  Addresses: NodeAddress[] | null;
  CaravanCapacity: number;
}

export interface NodePool {
  Name: string;
  Description: string;
  Meta: Record<string, string> | null;
  NodeIdentityTTL: unknown;
  SchedulerConfiguration: NodePoolScheduler | null;
  Hash: string | null;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface NodePoolScheduler {
  SchedulerAlgorithm: string;
  MemoryOversubscriptionEnabled: boolean | null;
}

export interface NodeResources {
  Cpu: NodeCpu;
  Processors: Processors;
  Memory: NodeMemory;
  Disk: NodeDisk;
  Devices: DeviceGroup[] | null;
  NodeNetworks: NodeNetwork[] | null;
  Networks: Network[] | null;
  MinDynamicPort: number;
  MaxDynamicPort: number;
}

export interface NodeScore {
  NodeID: string;
  Scores: Record<string, number>;
  NormScore: number;
}

export type NodeStatus = 'initializing' | 'ready' | 'down' | 'disconnected';

export interface Numa {
  Affinity: string | null;
  Devices: string[] | null;
}

export interface Overview {
  Jobs: Record<string, number> | null;
  Allocations: Record<string, number> | null;
  Evaluations: Record<string, number> | null;
  Nodes: Record<string, number> | null;
  Plugins: Record<string, number> | null;
  Volumes: Record<string, number> | null;
  Claims: Record<string, number> | null;
  Attention: AttentionItem[];
  Omitted: number;
  Denied: string[];
}

export interface Parameterized {
  Payload: string | null;
  MetaRequired: string[] | null;
  MetaOptional: string[] | null;
}

export interface Periodic {
  Enabled: boolean | null;
  Spec: string | null;
  Specs: string[] | null;
  SpecType: string | null;
  ProhibitOverlap: boolean | null;
  TimeZone: string | null;
}

export interface PlanAnnotations {
  DesiredTGUpdates: Record<string, DesiredUpdates>;
  PreemptedAllocs: AllocListStub[] | null;
}

export interface Plugin {
  ID: string;
  Provider: string;
  Version: string;
  ControllerRequired: boolean;
  Controllers: Record<string, CsiInfo>;
  Nodes: Record<string, CsiInfo>;
  Allocations?: AllocListStub[];
  ControllerJobs: Record<string, Record<string, PluginJob>>;
  NodeJobs: Record<string, Record<string, PluginJob>>;
  CaravanLeftMounts?: Record<string, LeftMount[]>;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface PluginCall {
  Call: string;
  NodeID: string;
  VolumeID: string;
  Namespace: string;
  Since: number;
}

export interface PluginExplain {
  ID: string;
  Summary: string;
  Reasons: string[];
  Volumes: Record<string, number>;
  Calls: PluginCall[];
  Omitted: number;
  Lanes: Lane[];
}

export interface PluginFacts {
  Failed: number;
  Waiting: number;
  Fencing: number;
  Changing: number;
  Rest: number;
  Calls: number;
  Lanes: Lane[];
  Sick: string[];
  Homes: Record<string, Needs>;
  OmittedHomes: number;
}

export interface PluginJob {
  Namespace: string;
  ID: string;
  Expected: number;
}

export interface PluginListStub {
  ID: string;
  Provider: string;
  ControllerRequired: boolean;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface Port {
  Label: string;
  Value: number;
  To: number;
  HostNetwork: string;
  IgnoreCollision: boolean;
}

export interface Processors {
  Topology: unknown;
}

export type PropagationMode = 'private' | 'host-to-task' | 'bidirectional';

export interface RequestedDevice {
  Name: string;
  Count: number;
  Constraints: Constraint[] | null;
  Affinities: Affinity[] | null;
}

export interface RescheduleEvent {
  RescheduleTime: number;
  PrevAllocID: string;
  PrevNodeID: string;
  Delay: number;
}

export interface ReschedulePolicy {
  Attempts: number;
  Interval: number;
  Delay: number;
  DelayFunction: string;
  MaxDelay: number;
  Unlimited: boolean;
}

export interface RescheduleTracker {
  Events: RescheduleEvent[] | null;
  LastReschedule: string;
}

export interface ReservedCpu {
  CpuShares: number;
  ReservedCpuCores: number[] | null;
}

export interface ReservedNetworks {
  ReservedHostPorts: string;
}

export interface ReservedResources {
  Cpu: ReservedCpu;
  Memory: NodeMemory;
  Disk: NodeDisk;
  Networks: ReservedNetworks;
}

export interface Resources {
  CPU: number;
  Cores: number;
  MemoryMB: number;
  MemoryMaxMB: number;
  DiskMB: number;
  IOPS: number;
  Networks: Network[] | null;
  Devices: RequestedDevice[] | null;
  NUMA: Numa | null;
  SecretsMB: number;
}

export type RestartMode = 'fail' | 'delay';

export interface RestartPolicy {
  Attempts: number;
  Interval: number;
  Delay: number;
  Mode: RestartMode;
  RenderTemplates: boolean;
}

export interface RoleLink {
  ID: string;
  Name: string;
}

export interface ScalingPolicy {
  Min: number | null;
  Max: number | null;
  Policy: Record<string, unknown> | null;
  Enabled: boolean | null;
  Type: string | null;
  ID: string | null;
  Target: Record<string, string> | null;
  CreateIndex: number | null;
  ModifyIndex: number | null;
}

export interface ServerList {
  Leader: string;
  Members: Member[];
}

export interface ServiceRegistration {
  ID: string;
  ServiceName: string;
  Namespace: string;
  NodeID: string;
  Datacenter: string;
  JobID: string;
  AllocID: string;
  Tags: string[];
  Address: string;
  Port: number;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface ServiceSpec {
  Name: string | null;
  Tags: string[] | null;
  CanaryTags: string[] | null;
  EnableTagOverride: boolean | null;
  PortLabel: string | null;
  AddressMode: string | null;
  Address: string | null;
  Checks: CheckSpec[] | null;
  Connect: unknown;
  Meta: Record<string, string> | null;
  CanaryMeta: Record<string, string> | null;
  TaggedAddresses: Record<string, string> | null;
  TaskName: string | null;
  OnUpdate: string | null;
  Identity: IdentitySpec | null;
  Weights: ServiceWeights | null;
  Provider: string | null;
  Cluster: string | null;
  Kind: string | null;
  Namespace: string | null;
}

export interface ServiceWeights {
  Passing: number | null;
  Warning: number | null;
}

export interface Spread {
  Attribute: string;
  Weight: number;
  SpreadTarget: SpreadTarget[] | null;
}

export interface SpreadTarget {
  Value: string;
  Percent: number;
}

export interface StaticVolume {
  Name: string;
  NodeID: string;
  ReadOnly: boolean;
}

export interface StorageMap {
  Plugins: PluginListStub[];
  Volumes: VolumeExplain[];
  Worst: Worst | null;
  Facts: Record<string, PluginFacts>;
  HostVolumes: HostVolumeStub[];
  OmittedHostVolumes: number;
  Holders: Record<string, HostVolumeHolder[]>;
  StaticVolumes: StaticVolume[];
  OmittedStaticVolumes: number;
  Blocked: BlockedJob[];
  Nodes: Record<string, string>;
  Hidden: number;
  Denied: string[];
}

export interface Submission {
  Source: string;
  Format: string;
  VariableFlags: Record<string, string>;
  Variables: string;
}

export interface Task {
  Name: string;
  Driver: string;
  User: string;
  Config: Record<string, unknown> | null;
  Env: Record<string, string> | null;
  Services: ServiceSpec[] | null;
  Vault: unknown;
  Secrets: unknown[] | null;
  Consul: Consul | null;
  Templates: Template[] | null;
  Constraints: Constraint[] | null;
  Affinities: Affinity[] | null;
  Resources: Resources;
  RestartPolicy: RestartPolicy | null;
  DispatchPayload: DispatchPayload | null;
  Lifecycle: Lifecycle | null;
  Meta: Record<string, string> | null;
  KillTimeout: number;
  LogConfig: LogConfig;
  Artifacts: Artifact[] | null;
  Leader: boolean;
  ShutdownDelay: number;
  VolumeMounts: VolumeMount[] | null;
  ScalingPolicies: ScalingPolicy[] | null;
  KillSignal: string;
  Kind: string;
  CSIPluginConfig: CsiPluginConfig | null;
  Identity: IdentitySpec | null;
  Identities: IdentitySpec[] | null;
  Actions: Action[] | null;
  Schedule: unknown;
}

export interface TaskEvent {
  Type: string;
  Time: number;
  Details: Record<string, string>;
  Message: string;
  DisplayMessage: string;
}

export interface TaskGroup {
  Name: string;
  Count: number;
  Update: UpdateStrategy | null;
  Migrate: MigrateStrategy | null;
  Constraints: Constraint[] | null;
  Scaling: ScalingPolicy | null;
  RestartPolicy: RestartPolicy | null;
  Disconnect: DisconnectStrategy | null;
  Tasks: Task[] | null;
  EphemeralDisk: EphemeralDisk | null;
  Meta: Record<string, string> | null;
  ReschedulePolicy: ReschedulePolicy | null;
  Affinities: Affinity[] | null;
  Spreads: Spread[] | null;
  Networks: Network[] | null;
  Consul: Consul | null;
  Services: ServiceSpec[] | null;
  Volumes: Record<string, VolumeRequest> | null;
  ShutdownDelay: number | null;
  MaxRunDuration: number | null;
  StopAfterClientDisconnect: number | null;
  MaxClientDisconnect: number | null;
  PreventRescheduleOnLost: boolean;
}

export type TaskRunState = 'pending' | 'running' | 'dead';

export interface TaskState {
  State: TaskRunState;
  Failed: boolean;
  Restarts: number;
  LastRestart: string | null;
  StartedAt: string | null;
  FinishedAt: string | null;
  Events: TaskEvent[] | null;
  Paused: string;
}

export interface Template {
  SourcePath: string | null;
  DestPath: string | null;
  EmbeddedTmpl: string | null;
  ChangeMode: string | null;
  ChangeScript: ChangeScript | null;
  ChangeSignal: string | null;
  Once: boolean | null;
  Splay: number | null;
  Perms: string | null;
  Uid: number | null;
  Gid: number | null;
  LeftDelim: string | null;
  RightDelim: string | null;
  Envvars: boolean | null;
  VaultGrace: number | null;
  Wait: WaitConfig | null;
  ErrMissingKey: boolean | null;
}

export interface Token {
  AccessorID: string;
  SecretID: string;
  Name: string;
  Type: string;
  Policies: string[] | null;
  Roles: RoleLink[] | null;
  Global: boolean;
  Hash: string | null;
  CreateTime: string | null;
  ExpirationTime: string | null;
  ExpirationTTL: unknown;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface TokenStub {
  AccessorID: string;
  Name: string;
  Type: string;
  Policies: string[] | null;
  Roles: RoleLink[] | null;
  Global: boolean;
  Hash: string | null;
  CreateTime: string | null;
  ExpirationTime: string | null;
  CreateIndex: number;
  ModifyIndex: number;
}

export interface Topology {
  Segments: Record<string, string> | null;
}

export interface TopologyRequest {
  Required: Topology[] | null;
  Preferred: Topology[] | null;
}

export type Trigger = 'job-register' | 'job-deregister' | 'periodic-job' | 'node-drain' | 'node-update' | 'alloc-stop' | 'scheduled' | 'rolling-update' | 'deployment-watcher' | 'failed-follow-up' | 'max-plan-attempts' | 'alloc-failure' | 'queued-allocs' | 'preemption' | 'job-scaling' | 'max-disconnect-timeout' | 'reconnect' | 'alloc-reschedule';

export interface UpdateStrategy {
  Stagger: number;
  MaxParallel: number;
  HealthCheck: string;
  MinHealthyTime: number;
  HealthyDeadline: number;
  ProgressDeadline: number;
  AutoRevert: boolean;
  AutoPromote: boolean;
  Canary: number;
}

export interface VariableLock {
  ID: string;
  TTL: unknown;
  LockDelay: unknown;
}

export interface VariableMetadata {
  Namespace: string;
  Path: string;
  Lock?: VariableLock | null;
  CreateIndex: number;
  ModifyIndex: number;
  CreateTime: number;
  ModifyTime: number;
}

export interface VariableRule {
  Path: string;
  Capabilities: string[];
}

export interface VersionTag {
  Name: string;
  Description: string;
  TaggedTime: number;
}

export interface VolumeCondition {
  Abnormal: boolean;
  Message: string;
}

export interface VolumeExplain {
  ID: string;
  Namespace: string;
  PluginID: string;
  ExternalID: string;
  Phase: VolumePhase;
  Summary: string;
  Calls: CallInFlight[] | null;
  Tries: number;
  LastError: string;
  NextTry: number;
  Capacity: Capacity;
  Usage: Record<string, VolumeUsage>;
  Claims: ClaimExplain[] | null;
  History: VolumeTransition[] | null;
}

export interface VolumeMount {
  Volume: string;
  Destination: string;
  ReadOnly: boolean;
  PropagationMode: PropagationMode;
  SELinuxLabel: string;
}

export type VolumePhase = 'creating' | 'ready' | 'expanding' | 'deleting';

export interface VolumeRequest {
  Name: string;
  Type: VolumeType;
  Source: string;
  ReadOnly: boolean;
  Sticky: boolean;
  AccessMode: string;
  AttachmentMode: string;
  MountOptions: MountOptions | null;
  PerAlloc: boolean;
  BrokenMount?: BrokenMount;
  User?: string;
  Group?: string;
  Mode?: string;
  CaravanHostAccess?: HostAccess;
}

export interface VolumeTransition {
  At: number;
  Phase: VolumePhase;
  Note: string;
}

export type VolumeType = 'csi' | 'host';

export interface VolumeUsage {
  TotalBytes: number;
  UsedBytes: number;
  AvailableBytes: number;
  TotalInodes: number;
  UsedInodes: number;
  AvailableInodes: number;
  Condition: VolumeCondition | null;
  SampledAt: number;
}

export interface WaitConfig {
  Min: number | null;
  Max: number | null;
}

export interface WhatIf {
  Moves: WhatIfMove[];
  Placed: [string, string][];
  Reasons: string[];
  Hidden: number;
  Skipped: number;
}

export interface WhatIfMove {
  Namespace: string;
  JobID: string;
  Name: string;
  From: string;
  To: string;
  Volumes: string[];
}

export interface Worst {
  Volumes: VolumeExplain[];
  Places: string[];
  Before: number;
  Listed: number;
  Next: string;
  Facts: Record<string, PluginFacts>;
  Blocked: BlockedJob[];
}
