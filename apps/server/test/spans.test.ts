/** Spans reach a tracer that the process has registered; prompts do not. */
import { context, propagation, trace, type Attributes, type Context, type Span, type Tracer } from '@opentelemetry/api';
import type { Model } from '@winnow/engine';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { demoId, loadDemoModel, postJson, startServer, until } from './demo-server.js';
import { failing, scripted } from './fake-models.js';

interface Recorded {
  readonly name: string;
  readonly parent: string | undefined;
  readonly attributes: Attributes;
  readonly events: string[];
  status: number | undefined;
  hasEnded: boolean;
}

const spans: Recorded[] = [];
let model: Model;

/** Records spans; their id is their name. */
function startSpan(name: string, { attributes = {} }: { attributes?: Attributes } = {}, parent: Context): Span {
  const remote = parent.getValue(parentKey) as string | undefined;
  const recorded: Recorded = {
    ...{ name, attributes: { ...attributes }, events: [], status: undefined, hasEnded: false },
    parent: trace.getSpanContext(parent)?.spanId ?? remote,
  };
  spans.push(recorded);
  const span = {
    spanContext: () => ({ traceId: '1', spanId: name, traceFlags: 1 }),
    setAttribute: (key: string, value: string) => Object.assign(recorded.attributes, { [key]: value }),
    setAttributes: (more: Attributes) => Object.assign(recorded.attributes, more),
    addEvent: (event: string) => recorded.events.push(event),
    setStatus: ({ code }: { code: number }) => (recorded.status = code),
    end: () => (recorded.hasEnded = true),
  };
  return span as unknown as Span;
}

const parentKey = Symbol('parent');

beforeAll(async () => {
  trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan }) as unknown as Tracer });
  propagation.setGlobalPropagator({
    inject: () => {},
    fields: () => [],
    extract: (parent, carrier) => parent.setValue(parentKey, (carrier as Record<string, string>)['traceparent']),
  });
  model = await loadDemoModel();
});

afterEach(() => spans.splice(0));

afterAll(async () => {
  trace.disable();
  propagation.disable();
  context.disable();
  await model?.dispose();
});

test('a request has a span in the trace of its client, and its generation one within', async () => {
  const broken = scripted(model, failing(new Error('broken')));
  const demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'broken', model: broken },
    ],
  });
  const body = { prompt: 'a secret prompt', max_tokens: 2, temperature: 0 };
  await postJson(`${demo.url}/v1/completions`, { ...body, model: demoId }, { traceparent: 'remote' });
  await postJson(`${demo.url}/v1/completions`, { ...body, model: 'broken' });
  await until(() => spans.every(({ hasEnded }) => hasEnded));
  await demo.close();
  const route = 'POST /v1/completions';
  expect(spans).toMatchObject([
    { name: route, parent: 'remote', attributes: { 'http.response.status_code': 200 }, status: undefined },
    {
      ...{ name: `text_completion ${demoId}`, parent: route, events: ['first token'], status: undefined },
      attributes: { 'gen_ai.usage.output_tokens': 2, 'gen_ai.response.finish_reasons': ['length'] },
    },
    { name: route, parent: undefined, attributes: { 'http.response.status_code': 500 }, status: 2 },
    { name: 'text_completion broken', parent: route, attributes: { 'gen_ai.usage.output_tokens': 0 }, status: 2 },
  ]);
  expect(JSON.stringify(spans)).not.toContain('secret');
});

test('a load has a span', async () => {
  const owned = { ...scripted(model, failing(new Error('x'))), [Symbol.asyncDispose]: async () => {} };
  const tiny = {
    id: 'tiny',
    prepare: async () => ({ memoryBytes: 5, load: async () => ({ kind: 'generative', model: owned }) as const }),
  };
  const demo = await startServer({ catalog: { list: async () => [tiny], find: async () => tiny }, memoryBytes: 1e9 });
  await postJson(`${demo.url}/tokenize`, { model: 'tiny', content: 'a' });
  await demo.close();
  const [loaded] = spans.filter(({ name }) => name === 'load tiny');
  expect(loaded).toMatchObject({ attributes: { 'winnow.load.result': 'loaded' }, status: undefined, hasEnded: true });
});
