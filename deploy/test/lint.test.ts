/** Linters and schemas on the files that no test can run. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { DCLinter } from 'dclint';
import { DockerfileParser } from 'dockerfile-ast';
import { validate } from 'dockerfile-utils';
import { parse } from 'yaml';
import { expect, test } from 'vitest';
import { kubernetesProblems, manifestsOf, type Manifest } from './kubernetes.js';
import { composePath } from './compose-file.js';

const deployFolder = join(repoRoot, 'deploy');
const dockerfile = readFileSync(join(deployFolder, 'Dockerfile'), 'utf8');
const manifestFiles = ['serve.yaml', 'batches.yaml', 'gateway.yaml'];
const manifests = manifestFiles.flatMap((name) =>
  manifestsOf(readFileSync(join(deployFolder, 'kubernetes', name), 'utf8')),
);

test('the Dockerfile has no problem, and names its images, its user and the version of pnpm', () => {
  expect(validate(dockerfile)).toEqual([]);
  const file = DockerfileParser.parse(dockerfile);
  const images = file.getFROMs().map((from) => from.getImage());
  expect(new Set(images).size).toBe(1);
  expect(images[0]).toMatch(/^node:\d+\.\d+\.\d+-[a-z]+-slim$/);
  const keywords = file.getInstructions().map((each) => each.getKeyword());
  const lastStage = keywords.slice(keywords.lastIndexOf('FROM'));
  expect(lastStage.filter((each) => ['USER', 'HEALTHCHECK', 'ENTRYPOINT'].includes(each))).toEqual([
    'USER',
    'HEALTHCHECK',
    'ENTRYPOINT',
  ]);
  const { packageManager } = JSON.parse(readFileSync(join(repoRoot, 'package.json'), 'utf8')) as {
    packageManager: string;
  };
  expect(dockerfile).toContain(`npm install --global ${packageManager}\n`);
  for (const [, path = ''] of dockerfile.matchAll(/\b((?:packages|apps|deploy|scripts)\/[\w./-]+\.mjs)/g)) {
    expect([path, existsSync(join(repoRoot, path))]).toEqual([path, true]);
  }
});

test('a defect of a Dockerfile is found', () => {
  const problems = validate(
    dockerfile.replace('USER 1000:1000', 'USR 1000:1000').replace('EXPOSE 8080', 'EXPOSE http'),
  );
  expect(problems).toHaveLength(2);
});

test('the context of a build has no output of builds and nothing private', () => {
  const ignored = readFileSync(join(repoRoot, '.dockerignore'), 'utf8').split('\n');
  const outputs = readFileSync(join(repoRoot, '.gitignore'), 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  const nameOf = (pattern: string): string =>
    pattern.replace(/^(\*\*\/|packages\/\*\/|tools\/fuzz\/)/, '').replace(/\/$/, '');
  const names = new Set([...ignored.map(nameOf), 'found']); // below `tools`
  expect(outputs.map(nameOf).filter((name) => !names.has(name))).toEqual([]);
  expect(ignored).toEqual(expect.arrayContaining(['.git', '**/.env', '**/node_modules']));
});

/** What is to be read first comes first. */
const rules = { 'service-keys-order': 0, 'top-level-properties-order': 0 } as const;

interface Finding {
  readonly rule: string;
  readonly message: string;
}

function composeProblems(path: string): string[] {
  const linter = new DCLinter({ rules, exclude: [], quiet: false, debug: false });
  const [result] = linter.lintFiles([path], false) as { readonly messages: readonly Finding[] }[];
  return (result?.messages ?? []).map(({ rule, message }) => `${rule}: ${message}`);
}

test('the compose file has no problem, and confines its containers', () => {
  expect(composeProblems(composePath)).toEqual([]);
  const { services } = parse(readFileSync(composePath, 'utf8'), { merge: true }) as {
    readonly services: Readonly<Record<string, { readonly image: string; readonly user?: string }>>;
  };
  const confined = { read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] };
  for (const [name, service] of Object.entries(services)) {
    expect({ name, ...service }).toMatchObject({ name, ...confined });
    if (service.image !== 'winnow:latest') expect(service.image).toMatch(/:v?\d+\.\d+\.\d+/);
  }
  expect(services['queue']?.user).toBe('999:999');
});

test('no command has a secret, which process lists would show', () => {
  const commands = Object.values(
    (parse(readFileSync(composePath, 'utf8'), { merge: true }) as { services: Record<string, { command: unknown }> })
      .services,
  ).map(({ command }) => JSON.stringify(command));
  const secret = /(?<!\$)\$\{?\(?\w*(PASSWORD|SECRET|KEY)/;
  expect(commands.filter((command) => secret.test(command))).toEqual([]);
  const containers = manifests.flatMap(({ spec }) => {
    const { template } = (spec ?? {}) as { template?: { spec: { containers: { args?: string[] }[] } } };
    return template?.spec.containers ?? [];
  });
  expect(containers.flatMap(({ args = [] }) => args).filter((arg) => /\$\(\w*(PASSWORD|SECRET|KEY)/.test(arg))).toEqual(
    [],
  );
});

test.each([
  ['stop_grace_period: 45s', 'stop_grace: 45s', 'invalid-schema'],
  ["'127.0.0.1:8080:8080'", "'8080:8080'", 'no-unbound-port-interfaces'],
])('a defect of a compose file is found: %s', (text, replacement, rule) => {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-compose-'));
  try {
    const path = join(folder, 'compose.yaml');
    writeFileSync(path, readFileSync(composePath, 'utf8').replace(text, replacement));
    expect(new Set(composeProblems(path).map((problem) => problem.split(':')[0]))).toEqual(new Set([rule]));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the manifests of Kubernetes are valid', () => {
  expect(manifests.length).toBeGreaterThan(15);
  expect(manifests.flatMap(kubernetesProblems)).toEqual([]);
});

test('a defect of a manifest is found', () => {
  const broken = manifests.map((each) => structuredClone(each));
  for (const { kind, spec } of broken) {
    if (kind === 'InferencePool') delete (spec as Record<string, unknown>)['targetPorts'];
    if (kind === 'HTTPRoute') (spec as { rules: Record<string, unknown>[] }).rules[0] = { backendRefs: [{ port: 80 }] };
    if (kind === 'Service') (spec as Record<string, unknown>)['ports'] = [{ name: 'http', port: 'eighty' }];
  }
  const kinds = new Set(broken.flatMap(kubernetesProblems).map((problem) => problem.split(' ')[0]));
  expect([...kinds].toSorted()).toEqual(['HTTPRoute', 'InferencePool', 'Service']);
});

test('what manifests refer to exists', () => {
  const named = (kind: string, name: string): Manifest | undefined =>
    manifests.find((each) => each.kind === kind && each.metadata.name === name);
  const { selector, targetPorts, endpointPickerRef } = (named('InferencePool', 'winnow') as Manifest).spec as {
    readonly selector: { readonly matchLabels: object };
    readonly targetPorts: readonly { readonly number: number }[];
    readonly endpointPickerRef: { readonly name: string };
  };
  const servers = JSON.stringify(named('Deployment', 'winnow'));
  expect(servers).toContain(`"matchLabels":${JSON.stringify(selector.matchLabels)}`);
  expect(servers).toContain(`"containerPort":${targetPorts[0]?.number}`);
  const hosts = [...JSON.stringify(manifests).matchAll(/@([a-z-]+):\d+/g)].map(([, host = '']) => host);
  for (const host of [endpointPickerRef.name, ...hosts])
    expect([host, named('Service', host)?.kind]).toEqual([host, 'Service']);
  const { resources } = parse(readFileSync(join(deployFolder, 'kubernetes', 'kustomization.yaml'), 'utf8')) as {
    readonly resources: readonly string[];
  };
  expect(resources.toSorted()).toEqual(manifestFiles.toSorted());
});
