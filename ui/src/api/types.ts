// The shapes of answers: the fields that the pages read.

export type States = Record<string, TaskState> | null;

export interface TaskEvent {
  Type: string;
  Time: number;
  DisplayMessage: string;
  ExitCode: number;
  FailsTask: boolean;
}

export interface TaskState {
  State: string;
  Failed: boolean;
  Restarts: number;
  StartedAt: string | null;
  FinishedAt: string | null;
  Events: TaskEvent[] | null;
}

export interface AllocStub {
  ID: string;
  Name: string;
  Namespace: string;
  JobID: string;
  JobType: string;
  JobVersion: number;
  TaskGroup: string;
  NodeID: string;
  NodeName: string;
  ClientStatus: string;
  ClientDescription: string;
  DesiredStatus: string;
  DesiredDescription: string;
  DeploymentStatus: { Healthy: boolean | null; Canary: boolean; Timestamp: string } | null;
  FollowupEvalID: string;
  NextAllocation: string;
  CreateTime: number;
  ModifyTime: number;
  TaskStates: States;
}

export interface Port {
  Label: string;
  Value: number;
  To: number;
  HostIP: string;
}

export interface Alloc extends AllocStub {
  EvalID: string;
  DeploymentID?: string;
  PreviousAllocation?: string;
  Job: Job | null;
  Metrics: Metric | null;
  AllocatedResources: {
    Tasks: Record<string, { Cpu: { CpuShares: number }; Memory: { MemoryMB: number; MemoryMaxMB: number } }> | null;
    Shared: { DiskMB: number; Ports: Port[] | null };
  } | null;
}

export interface Metric {
  NodesEvaluated: number;
  NodesFiltered: number;
  NodesExhausted: number;
  NodesAvailable: Record<string, number> | null;
  ConstraintFiltered: Record<string, number> | null;
  DimensionExhausted: Record<string, number> | null;
  ClassFiltered: Record<string, number> | null;
  QuotaExhausted: string[] | null;
  CoalescedFailures: number;
  ScoreMetaData: { NodeID: string; NormScore: number; Scores: Record<string, number> | null }[] | null;
}

export interface JobRow {
  ID: string;
  Name: string;
  Namespace: string;
  Type: string;
  Status: string;
  Stop: boolean;
  Priority: number;
  NodePool: string;
  SubmitTime: number;
  Version: number;
  ParentID: string;
  GroupCountSum: number;
  Allocs: { ID: string; ClientStatus: string; Group: string; JobVersion: number; NodeID: string }[] | null;
  CaravanAllocs?: Record<string, number>;
  LatestDeployment: { ID: string; IsActive: boolean; Status: string; RequiresPromotion: boolean } | null;
}

export interface VolumeRequest {
  Name: string;
  Type: string;
  Source: string;
  PerAlloc: boolean;
  ReadOnly: boolean;
  AccessMode: string;
}

export interface Group {
  Name: string;
  Count: number;
  Volumes: Record<string, VolumeRequest> | null;
  Tasks: { Name: string; Driver: string; Actions?: { Name: string }[] | null }[] | null;
}

export interface Job {
  ID: string;
  Name: string;
  Namespace: string;
  Type: string;
  Status: string;
  StatusDescription: string;
  Stop: boolean;
  Stable: boolean;
  Priority: number;
  NodePool: string;
  Datacenters: string[] | null;
  SubmitTime: number;
  Version: number;
  VersionTag?: { Name: string; Description: string } | null;
  ParentID: string;
  Periodic: unknown;
  ParameterizedJob: { Payload: string; MetaRequired: string[] | null; MetaOptional: string[] | null } | null;
  JobModifyIndex: number;
  TaskGroups: Group[] | null;
  Meta: Record<string, string> | null;
}

export interface Summary {
  Summary: Record<
    string,
    { Queued: number; Starting: number; Running: number; Complete: number; Failed: number; Lost: number; Unknown: number }
  > | null;
  Children: { Pending: number; Running: number; Dead: number } | null;
}

export interface Evaluation {
  ID: string;
  Namespace: string;
  JobID: string;
  NodeID?: string;
  Type: string;
  Status: string;
  StatusDescription: string;
  TriggeredBy: string;
  Priority: number;
  CreateTime: number;
  ModifyTime: number;
  CreateIndex: number;
  BlockedEval?: string;
  PreviousEval?: string;
  NextEval?: string;
  FailedTGAllocs?: Record<string, Metric> | null;
  MissingNonNodeResources?: string[] | null;
}

export interface Deployment {
  ID: string;
  Namespace: string;
  JobID: string;
  JobVersion: number;
  Status: string;
  StatusDescription: string;
  CreateTime: number;
  ModifyTime: number;
  TaskGroups: Record<
    string,
    {
      DesiredTotal: number;
      PlacedAllocs: number;
      HealthyAllocs: number;
      UnhealthyAllocs: number;
      DesiredCanaries: number;
      Promoted: boolean;
      AutoPromote: boolean;
      RequireProgressBy: string;
    }
  > | null;
}

export interface Driver {
  Detected: boolean;
  Healthy: boolean;
  HealthDescription: string;
}

export interface NodeRow {
  ID: string;
  Name: string;
  Address: string;
  Datacenter: string;
  NodePool: string;
  NodeClass: string;
  Version: string;
  Drain: boolean;
  SchedulingEligibility: string;
  Status: string;
  StatusDescription: string;
  ModifyIndex: number;
  Drivers: Record<string, Driver> | null;
}

export interface PluginOnNode {
  PluginID: string;
  AllocID: string;
  Provider: string;
  Healthy: boolean;
  HealthDescription: string;
}

export interface Node extends NodeRow {
  HTTPAddr: string;
  DrainStrategy: { Deadline: number; ForceDeadline: string; IgnoreSystemJobs: boolean } | null;
  Attributes: Record<string, string> | null;
  Meta: Record<string, string> | null;
  Events: { Message: string; Subsystem: string; Timestamp: string; Details: Record<string, string> | null }[] | null;
  HostVolumes: Record<string, { Name: string; Path: string; ReadOnly: boolean; ID: string }> | null;
  CSIControllerPlugins: Record<string, PluginOnNode> | null;
  CSINodePlugins: Record<string, PluginOnNode> | null;
  NodeResources: { Cpu: { CpuShares: number }; Memory: { MemoryMB: number }; Disk: { DiskMB: number } } | null;
}

export interface VolumeRow {
  ID: string;
  Name: string;
  Namespace: string;
  PluginID: string;
  Provider: string;
  ExternalID: string;
  AccessMode: string;
  AttachmentMode: string;
  Schedulable: boolean;
  CurrentReaders: number;
  CurrentWriters: number;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
  CreateTime: number;
}

export interface Step {
  At: number;
  Phase: string;
  Note: string;
}

export interface Claim {
  AllocID: string;
  JobID: string;
  TaskGroup: string;
  NodeID: string;
  Mode: string;
  AccessMode: string;
  AttachmentMode: string;
  Phase: string;
  Since: number;
  WaitsFor: string;
  Holder: string;
  Tries: number;
  LastError: string;
  NextTry: number;
  FenceUntil: number;
  History: Step[] | null;
}

export interface Usage {
  TotalBytes: number;
  UsedBytes: number;
  AvailableBytes: number;
  Condition: { Abnormal: boolean; Message: string } | null;
  SampledAt: number;
}

export interface VolumeExplain {
  ID: string;
  Namespace: string;
  PluginID: string;
  ExternalID: string;
  Phase: string;
  Summary: string;
  Tries: number;
  LastError: string;
  NextTry: number;
  Calls: { Call: string; NodeID: string; AllocID: string; Since: number; RunningFor: number }[] | null;
  Capacity: { wanted_min: number; wanted_max: number; accepted: number; actual: number } | null;
  Usage: Record<string, Usage> | null;
  Claims: Claim[] | null;
  History: Step[] | null;
}

export interface PluginRow {
  ID: string;
  Provider: string;
  ControllerRequired: boolean;
  ControllersHealthy: number;
  ControllersExpected: number;
  NodesHealthy: number;
  NodesExpected: number;
}

export interface Plugin extends PluginRow {
  Version: string;
  Allocations: AllocStub[] | null;
  Nodes: Record<string, PluginOnNode> | null;
  Controllers: Record<string, PluginOnNode> | null;
}

export interface HostVolume {
  ID: string;
  Name: string;
  Namespace: string;
  NodeID: string;
  NodePool: string;
  PluginID: string;
  State: string;
  CapacityBytes: number;
  HostPath?: string;
  CreateTime: number;
  Allocations?: AllocStub[] | null;
}

export interface Token {
  AccessorID: string;
  Name: string;
  Type: string;
  Policies: string[] | null;
  Roles: { ID: string; Name: string }[] | null;
  ExpirationTime: string | null;
  Global: boolean;
}

export interface Submission {
  Source: string;
  Format: string;
  VariableFlags: Record<string, string> | null;
  Variables: string;
}

/** Something that a person should look at. */
export interface Item {
  Kind: 'Job' | 'Deployment' | 'Node' | 'Plugin' | 'Volume';
  ID: string;
  Name: string;
  Namespace: string;
  Severity: 'failed' | 'waiting' | 'notice';
  Reason: string;
  Since: number;
  DetailID: string;
}

export type Counts = Record<string, number>;

export interface Overview {
  Jobs: Counts;
  Allocations: Counts;
  Evaluations: Counts;
  Nodes: Counts;
  Plugins: Counts;
  Volumes: Counts;
  Claims: Counts;
  Attention: Item[];
  Omitted: number;
  Denied: string[];
}

export interface StorageMap {
  Plugins: PluginRow[];
  Volumes: VolumeExplain[];
  HostVolumes: HostVolume[];
  Nodes: Record<string, string>;
  Hidden: number;
  Denied: string[];
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
  CPU: number[];
  CPUUsed: number[];
  MemoryMB: number[];
  MemoryMBUsed: number[];
  Allocations: number[];
}

export interface Capabilities {
  Management: boolean;
  Namespaces: Record<string, string[]>;
  Node: string;
  Agent: string;
  Operator: string;
  Plugin: string;
}
