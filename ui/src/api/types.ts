// The shapes of answers, by the names that the pages use. `cargo xtask ui` makes generated.ts from the Rust types; what servers add
// by hand stands here.

import type * as api from './generated';

export type {
  AllocListStub as AllocStub,
  AllocMetric as Metric,
  Capabilities,
  ClaimExplain as Claim,
  CsiInfo as PluginOnNode,
  CsiVolumeStub as VolumeRow,
  Deployment,
  DriverInfo as Driver,
  HostVolume,
  HostVolumeExplain,
  HostVolumeRow,
  Job,
  JobListStub,
  JobStatusRow as JobRow,
  JobSummary as Summary,
  Node,
  NodeColumns,
  NodeListStub as NodeRow,
  NodePool,
  PluginExplain,
  PluginListStub as PluginRow,
  ServiceRegistration,
  StorageMap,
  Submission,
  TaskGroup as Group,
  TaskState,
  Token,
  VariableMetadata,
  VolumeExplain,
  VolumeUsage as Usage,
  WhatIf,
} from './generated';

/** A type some of whose fields are never left out, because no object of the API has them empty. */
type Has<T, K extends keyof T> = T & Required<Pick<T, K>>;

export type Alloc = Has<api.Allocation, 'ID' | 'Name' | 'Namespace' | 'JobID' | 'NodeID' | 'TaskGroup'>;

export type Evaluation = Has<api.Evaluation, 'ID' | 'Namespace' | 'JobID' | 'Type' | 'CreateIndex' | 'ModifyIndex'>;

/** Counts by state. */
export type Counts = Record<string, number>;

/** Something that a person should look at. */
export type Item = api.AttentionItem & {
  Kind: 'Job' | 'Deployment' | 'Node' | 'Plugin' | 'Volume';
  Severity: 'failed' | 'waiting' | 'notice';
};

export type Overview = api.Overview & { Attention: Item[] };

/** A plugin with the allocations that run it. */
export type Plugin = api.Plugin & { Allocations: api.AllocListStub[] | null };
