/**
 * Spans of OpenTelemetry for requests, generations and loads. Without an SDK in the process they are no-ops. Prompts
 * and answers are never attributes.
 */
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { Attributes, Context, Span, Tracer } from '@opentelemetry/api';
import type { GenerationResult } from '@winnow/engine';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ModelEvent } from '../catalog.js';

const tracer = (): Tracer => trace.getTracer('@winnow/server');

const contexts = new WeakMap<FastifyRequest, Context>();

/** Begins the span of a request, in the trace that its headers name. It ends with the response. */
export function startRequestSpan(request: FastifyRequest, reply: FastifyReply): void {
  const { method, headers, routeOptions } = request;
  const route = routeOptions.url ?? 'unknown';
  const parent = propagation.extract(context.active(), headers);
  const attributes = { 'http.request.method': method, 'http.route': route, 'winnow.request_id': request.id };
  const span = tracer().startSpan(`${method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent);
  contexts.set(request, trace.setSpan(parent, span));
  reply.raw.once('close', () => {
    span.setAttribute('http.response.status_code', reply.statusCode);
    if (!reply.raw.writableFinished) span.setAttribute('error.type', 'client_closed');
    if (reply.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  });
}

/** A generation in the span of its request, named as OpenTelemetry's conventions for generative models say. */
export function startGenerationSpan(request: FastifyRequest, model: string): GenerationSpan {
  const attributes = { 'gen_ai.operation.name': 'text_completion', 'gen_ai.request.model': model };
  return new GenerationSpan(
    tracer().startSpan(`text_completion ${model}`, { attributes }, contexts.get(request) ?? context.active()),
  );
}

export class GenerationSpan {
  readonly #span: Span;

  constructor(span: Span) {
    this.#span = span;
  }

  /** The first token was generated. */
  noteFirstToken(): void {
    this.#span.addEvent('first token');
  }

  /** @param result undefined when the generation failed or was aborted */
  end(numPromptTokens: number, numTokens: number, result: GenerationResult | undefined): void {
    this.#span.setAttributes({
      'gen_ai.usage.input_tokens': numPromptTokens,
      'gen_ai.usage.output_tokens': numTokens,
      ...(result === undefined
        ? {}
        : {
            'gen_ai.response.finish_reasons': [result.finishReason],
            'winnow.cached_tokens': result.cachedTokens,
          }),
    });
    if (result === undefined) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}

/** A span of its own for each load that has ended: several requests may have waited for it. */
export function recordLoadSpan(event: ModelEvent): void {
  if (event.event === 'loading' || event.event === 'unloaded') return;
  const endTime = Date.now();
  const attributes: Attributes = { 'gen_ai.request.model': event.model, 'winnow.load.result': event.event };
  if (event.event === 'loaded') attributes['winnow.memory_bytes'] = event.memoryBytes;
  const startTime = endTime - event.durationMs;
  const span = tracer().startSpan(`load ${event.model}`, { attributes, startTime }, context.active());
  if (event.event === 'failed') span.setStatus({ code: SpanStatusCode.ERROR });
  span.end(endTime);
}
