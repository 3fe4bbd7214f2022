/** What a process did with lines of batches. */
import type { JobHandler } from '@winnow/jobs';

export interface Usage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number };
}

function usageOfLine(result: string): Usage {
  return (JSON.parse(result) as { body: { usage?: Usage } }).body.usage ?? {};
}

export class LineFigures {
  numAnswered = 0;
  promptTokens = 0;
  cachedTokens = 0;
  generatedTokens = 0;
  readonly #startMs = performance.now();

  seconds(): number {
    return (performance.now() - this.#startMs) / 1000;
  }

  /** For programs. */
  tokens(): Record<'promptTokens' | 'cachedTokens' | 'generatedTokens', number> {
    const { promptTokens, cachedTokens, generatedTokens } = this;
    return { promptTokens, cachedTokens, generatedTokens };
  }

  /** For people: lines, rate and tokens. */
  summary(): string {
    const { numAnswered, promptTokens, cachedTokens, generatedTokens } = this;
    const seconds = this.seconds();
    const share = promptTokens === 0 ? 0 : Math.round((100 * cachedTokens) / promptTokens);
    const rate = Number((numAnswered / seconds).toPrecision(3));
    return (
      `${numAnswered} in ${Number(seconds.toPrecision(3))} s: ${rate} lines/s, ${promptTokens} prompt tokens ` +
      `(${share}% from shared prefixes), ${generatedTokens} generated tokens`
    );
  }

  /** @param usageOf reads a result of the handler. Default: an answer to a line. */
  counted(handler: JobHandler, usageOf: (result: string) => Usage = usageOfLine): JobHandler {
    return async (job, context) => {
      const result = await handler(job, context);
      const usage = usageOf(result);
      this.numAnswered++;
      this.promptTokens += usage.prompt_tokens ?? 0;
      this.generatedTokens += usage.completion_tokens ?? 0;
      this.cachedTokens += usage.prompt_tokens_details?.cached_tokens ?? 0;
      return result;
    };
  }
}
