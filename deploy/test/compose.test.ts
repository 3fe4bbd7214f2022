/** Every process of the compose file, by its command: a request through the router, a batch through the queue. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import {
  findProgram,
  freePort,
  repoRoot,
  redisProgram,
  startRedisServer,
  startS3Server,
  testCoverage,
} from '@winnow/test-utils';
import { DockerfileParser } from 'dockerfile-ast';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { composeServices, type Service } from './compose-file.js';
import { manifestsOf } from './kubernetes.js';
import { canConfine, startWinnow, type WinnowProcess } from './processes.js';

/** The key of the object store that tests have is that of its program. */
const variables = { WINNOW_API_KEY: 'key', QUEUE_PASSWORD: 'password', OBJECTS_SECRET: 'S3RVER' };
const services = redisProgram === undefined ? new Map<string, Service>() : composeServices(variables);
/** Host names of the file with what has them here. */
const addresses = new Map<string, string>();
const processes: (WinnowProcess & { readonly service: string })[] = [];
const stops: (() => Promise<void>)[] = [];
let bucket = '';

function here(text: string): string {
  return text
    .replaceAll(/\b([a-z][a-z0-9-]*):\d+/g, (whole, name: string) => addresses.get(name) ?? whole)
    .replaceAll('s3://winnow/', `s3://${bucket}/`);
}

async function startRedis({ name, command, environment }: Service): Promise<void> {
  const [shell = '', option = '', script = ''] = command;
  const program = 'redis-server -';
  expect(script).toContain(program);
  const server = await startRedisServer((place) => {
    const words = place.map((word) => `'${word}'`).join(' ');
    const here = script.replace(program, `${program} ${words}`);
    return { command: [shell, option, here], environment: { PATH: process.env['PATH'] ?? '', ...environment } };
  });
  const { pid } = server;
  expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain(variables.QUEUE_PASSWORD);
  addresses.set(name, new URL(server.url).host);
  stops.push(server.stop);
}

async function startObjects({ name }: Service): Promise<void> {
  const server = await startS3Server();
  addresses.set(name, new URL(server.url).host);
  bucket = server.bucket;
  stops.push(server.close);
}

async function startOwn({ name, command, environment, replicas }: Service): Promise<void> {
  const argv = command.map(here);
  const [kind = ''] = argv;
  const place = kind === 'worker' ? [] : ['--host', '127.0.0.1', '--port', '0'];
  const variablesHere = Object.fromEntries(Object.entries(environment).map(([key, value]) => [key, here(value)]));
  if ('AWS_ACCESS_KEY_ID' in variablesHere) variablesHere['AWS_ACCESS_KEY_ID'] = variables.OBJECTS_SECRET;
  // replicas have one command
  for (let replica = 0; replica < (testCoverage === 'full' ? replicas : 1); replica++) {
    const started = startWinnow([...argv, ...place], variablesHere);
    processes.push({ service: name, ...started });
    if (place.length > 0) addresses.set(name, new URL(await started.url).host);
  }
}

const starting = new Map<string, Promise<void>>();
/** After those that it depends on. */
function start(service: Service): Promise<void> {
  const known = starting.get(service.name);
  if (known !== undefined) return known;
  const needed = service.dependsOn.map((name) => start(services.get(name) as Service));
  const starters: Record<string, typeof startOwn> = { queue: startRedis, objects: startObjects };
  const started = Promise.all(needed).then(() => (starters[service.name] ?? startOwn)(service));
  starting.set(service.name, started);
  return started;
}

beforeAll(async () => {
  await Promise.all([...services.values()].map(start));
});
afterAll(async () => {
  await Promise.all(processes.map((each) => each.end('SIGKILL')));
  for (const stop of stops) await stop();
});

/** The command of HEALTHCHECK for another port than that of the container. */
function healthCheck(port: string): { readonly status: number | null } {
  const file = DockerfileParser.parse(readFileSync(join(repoRoot, 'deploy', 'Dockerfile'), 'utf8'));
  const [check] = file.getHEALTHCHECKs();
  const argument = check?.getRawArgumentsContent() ?? '';
  const command = JSON.parse(argument.slice(argument.indexOf('['))) as string[];
  const [program = '', ...rest] = command.map((word) => word.replace(':8080', `:${port}`));
  return spawnSync(program === 'node' ? process.execPath : program, rest);
}

/** Metrics that manifests name, by the service of the compose file that has them. */
function metricNames(): Map<string, string[]> {
  const [gateway = [], serve = [], batches = []] = ['gateway', 'serve', 'batches'].map((name) =>
    manifestsOf(readFileSync(join(repoRoot, 'deploy', 'kubernetes', `${name}.yaml`), 'utf8')),
  );
  const config = parse(gateway.find(({ kind }) => kind === 'ConfigMap')?.data?.['plugins.yaml'] ?? '') as {
    readonly plugins: readonly {
      readonly parameters?: { readonly engineConfigs?: readonly Record<string, string>[] };
    }[];
  };
  const [engine = {}] = config.plugins.flatMap(({ parameters }) => parameters?.engineConfigs ?? []);
  const specs = Object.entries(engine).flatMap(([key, name]) => (key.endsWith('Spec') ? [name] : []));
  const scaled = (manifests: typeof gateway): string[] => {
    const scalers = JSON.stringify(manifests.filter(({ kind }) => kind === 'HorizontalPodAutoscaler'));
    return [...scalers.matchAll(/"metric":\{"name":"(\w+)"/g)].map(([, name = '']) => name);
  };
  return new Map([
    ['replica-1', [...specs, ...scaled(serve)]],
    ['batches', scaled(batches)],
  ]);
}

const router = (): string => `http://${addresses.get('router')}`;
const client = (): OpenAI => new OpenAI({ baseURL: `${router()}/v1`, apiKey: variables.WINNOW_API_KEY, maxRetries: 0 });

/** Runs a batch. */
async function ended(fileId: string): Promise<OpenAI.Batch> {
  const endpoint = '/v1/completions';
  let batch = await client().batches.create({ input_file_id: fileId, endpoint, completion_window: '24h' });
  while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
    await sleep(50);
    batch = await client().batches.retrieve(batch.id);
  }
  return batch;
}

describe.skipIf(redisProgram === undefined)('requests, with redis-server', () => {
  test('a request goes through the router to a replica, and only with the key', async () => {
    const messages = [{ role: 'user' as const, content: 'What is the code of Alice?' }];
    const { choices } = await client().chat.completions.create({ model: 'winnow-tiny', messages, max_tokens: 4 });
    expect(choices[0]?.message.content).not.toBe('');
    const metrics = await (await fetch(`${router()}/metrics`, { headers: { authorization: 'Bearer key' } })).text();
    expect(metrics.match(/^winnow_router_upstream_up\{.*\} 1$/gm)).toHaveLength(2);
    expect((await fetch(`${router()}/v1/models`)).status).toBe(401);
  });

  test('a batch goes through the router and the queue to the workers, and its files to the object store', async () => {
    const lines = Array.from({ length: 12 }, (_, index) => ({
      custom_id: `line-${index}`,
      method: 'POST',
      url: '/v1/completions',
      body: { prompt: `The number ${index} is`, max_tokens: 4 },
    }));
    const upload = await toFile(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 'lines.jsonl');
    const { id } = await client().files.create({ file: upload, purpose: 'batch' });
    const batch = await ended(id);
    expect([batch.status, batch.request_counts]).toEqual(['completed', { total: 12, completed: 12, failed: 0 }]);
    const output = await (await client().files.content(batch.output_file_id ?? '')).text();
    const ids = output
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { custom_id: string }).custom_id);
    expect(ids).toEqual(lines.map(({ custom_id }) => custom_id));
  });

  test('servers have the metrics that the endpoint picker and the autoscalers read', async () => {
    const names = metricNames();
    expect(names.get('replica-1')).toHaveLength(4);
    for (const [service, wanted] of names) {
      const headers = { authorization: `Bearer ${variables.WINNOW_API_KEY}` };
      const text = await (await fetch(`http://${addresses.get(service)}/metrics`, { headers })).text();
      const printed = [...text.matchAll(/^# TYPE (\S+) gauge$/gm)].map(([, name]) => name);
      expect(printed).toEqual(expect.arrayContaining(wanted));
    }
  });
});

describe.skipIf(redisProgram === undefined)('processes, with redis-server', () => {
  test('the health check of the image tells a server from none', async () => {
    for (const name of ['router', 'replica-1', 'batches']) {
      expect([name, healthCheck(new URL(`http://${addresses.get(name)}`).port).status]).toEqual([name, 0]);
    }
    expect(healthCheck(String(await freePort())).status).toBe(1);
  });

  test.skipIf(findProgram('redis-cli') === undefined)('the health check of the queue knows its password', () => {
    const port = new URL(`http://${addresses.get('queue')}`).port;
    const { environment } = services.get('queue') as Service;
    const { stdout } = spawnSync('redis-cli', ['-p', port, 'ping'], { env: { ...process.env, ...environment } });
    expect(String(stdout)).toBe('PONG\n');
  });

  test.skipIf(!canConfine)('all of them ran as another user on read-only file systems', () => {
    for (const { pid } of processes) {
      expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:\t1000\t1000/m);
      expect(readFileSync(`/proc/${pid}/mounts`, 'utf8')).toMatch(/^\S+ \/ \S+ ro,/m);
    }
  });

  test('SIGTERM ends each with 0', async () => {
    const names = new Set(processes.map(({ service }) => service));
    expect([...names].toSorted()).toEqual(['batches', 'replica-1', 'replica-2', 'router', 'worker']);
    const codes = await Promise.all(
      processes.map(async (each) => [each.service, await each.end('SIGTERM'), each.stderr()]),
    );
    for (const [service, code, stderr] of codes) expect([service, code, stderr]).toEqual([service, 0, stderr]);
  });
});
