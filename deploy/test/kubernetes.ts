/**
 * Checks manifests against the schemas of their kinds: those of Kubernetes and of its Gateway API from packages, that of `InferencePool`
 * by the reference of the inference extension (gateway-api-inference-extension, api/v1, commit 84436a96).
 */
import { Gateway, HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1';
import { Ajv } from 'ajv';
import { Deployment, StatefulSet } from 'kubernetes-models/apps/v1';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { Role, RoleBinding } from 'kubernetes-models/rbac.authorization.k8s.io/v1';
import { ConfigMap, Service, ServiceAccount } from 'kubernetes-models/v1';
import { parseAllDocuments } from 'yaml';

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec?: unknown;
  readonly data?: Readonly<Record<string, string>>;
}

const port = {
  type: 'object',
  required: ['number'],
  additionalProperties: false,
  properties: { number: { type: 'integer', minimum: 1, maximum: 65_535 } },
};
const label = { type: 'string', maxLength: 63, pattern: '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$' };
const inferencePool = {
  type: 'object',
  required: ['apiVersion', 'kind', 'metadata', 'spec'],
  additionalProperties: false,
  properties: {
    apiVersion: { const: 'inference.networking.k8s.io/v1' },
    kind: { const: 'InferencePool' },
    metadata: { type: 'object' },
    spec: {
      type: 'object',
      required: ['selector', 'targetPorts'],
      additionalProperties: false,
      properties: {
        appProtocol: { enum: ['http', 'kubernetes.io/h2c'] },
        selector: {
          type: 'object',
          required: ['matchLabels'],
          additionalProperties: false,
          properties: {
            matchLabels: { type: 'object', minProperties: 1, maxProperties: 64, additionalProperties: label },
          },
        },
        targetPorts: { type: 'array', minItems: 1, maxItems: 8, uniqueItems: true, items: port },
        endpointPickerRef: {
          type: 'object',
          // a picker that is a Service, which is the default, needs its port
          required: ['name', 'port'],
          additionalProperties: false,
          properties: {
            group: { type: 'string', maxLength: 253 },
            kind: { type: 'string', minLength: 1, maxLength: 63 },
            name: { type: 'string', minLength: 1, maxLength: 253 },
            port,
            failureMode: { enum: ['FailOpen', 'FailClose'] },
          },
        },
      },
    },
  },
};

const ajv = new Ajv({ allErrors: true });
const isInferencePool = ajv.compile(inferencePool);

type Model = new (manifest: never) => { validate(): void };
const models: Readonly<Record<string, Model>> = {
  'gateway.networking.k8s.io/v1 Gateway': Gateway,
  'gateway.networking.k8s.io/v1 HTTPRoute': HTTPRoute,
  'apps/v1 Deployment': Deployment,
  'apps/v1 StatefulSet': StatefulSet,
  'autoscaling/v2 HorizontalPodAutoscaler': HorizontalPodAutoscaler,
  'policy/v1 PodDisruptionBudget': PodDisruptionBudget,
  'rbac.authorization.k8s.io/v1 Role': Role,
  'rbac.authorization.k8s.io/v1 RoleBinding': RoleBinding,
  'v1 ConfigMap': ConfigMap,
  'v1 Service': Service,
  'v1 ServiceAccount': ServiceAccount,
};

/** @throws {Error} for text that is no YAML */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text).map((document) => {
    if (document.errors.length > 0) throw document.errors[0] as Error;
    return document.toJS() as Manifest;
  });
}

export function kubernetesProblems(manifest: Manifest): string[] {
  const { apiVersion, kind, metadata } = manifest;
  const name = `${kind} ${metadata.name}`;
  if (kind === 'InferencePool')
    return isInferencePool(manifest) ? [] : [`${name}: ${ajv.errorsText(isInferencePool.errors)}`];
  const ModelOfKind = models[`${apiVersion} ${kind}`];
  if (ModelOfKind === undefined) return [`${name}: no schema of ${apiVersion}`];
  try {
    new ModelOfKind(manifest as never).validate();
    return [];
  } catch (error) {
    return [`${name}: ${error instanceof Error ? error.message : String(error)}`];
  }
}
