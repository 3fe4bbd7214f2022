/** The acceptance rate of self-speculation by the demo model at the end of its longest context; no times are measured. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Session } from '@winnow/engine';
import { defaultText } from '@winnow/evaluation';
import type { Figure } from '../../harness/figure.js';
import type { SuiteContext } from '../../harness/suite.js';

const suite = 'speculation';
const [longest, quickContext] = [2048, 768];
/** Tokens per generation: the first one, three plain steps that provide the time to compare with, a drafted one, and the one after it. */
const perDraft = 6;
const [numDrafts, fewDrafts] = [80, 4];
const policies = ['streaming:window=256,sinks=4', 'streaming:window=512,sinks=4'] as const;

/** Drafts of one token each, after a text that the model has not been trained on. */
export async function* longestAcceptance(context: SuiteContext): AsyncIterable<Figure> {
  const [count, contextSize] = context.options.quick ? [fewDrafts, quickContext] : [numDrafts, longest];
  const numPrompt = contextSize - perDraft * (count + 1);
  for (const policy of policies) {
    const backend = await context.createBackend(context.options.threads.at(-1) ?? 1, 'default');
    let ms = 0;
    // with this clock, drafts always pay off
    const now = (): number => ms++;
    const size = { context: contextSize, maxSessions: 1 };
    const model = await loadModel(demoModelUrl, { backend, now, ...size, speculative: `self=${policy}` });
    try {
      const encode = (text: string): Int32Array => model.tokenizer.encode(text);
      const prompt = encode(defaultText(numPrompt, (text) => encode(text).length)).slice(0, numPrompt);
      for (const temperature of [0, 0.8]) {
        context.say(`${count} drafts of self=${policy} after ${numPrompt} tokens`);
        using session = model.createSession();
        const { drafted, accepted } = await compare(session, prompt, temperature, count);
        const [percent, ratio] = [(100 * accepted) / drafted, accepted / drafted];
        const name = `self=${policy}, demo model f16, tokens ${numPrompt} to ${contextSize}, temperature ${temperature}`;
        yield {
          suite,
          case: `${name}: accepted`,
          value: percent,
          best: percent,
          unit: '%',
          ratio,
          ratioOf: `${drafted} drafts`,
        };
      }
    } finally {
      await model.dispose();
      await backend.dispose();
    }
  }
}

/** Continues the text with generations that have room for one drafted token each. */
async function compare(
  session: Session,
  prompt: Int32Array,
  temperature: number,
  count: number,
): Promise<{ readonly drafted: number; readonly accepted: number }> {
  const text = [...prompt];
  let [drafted, accepted] = [0, 0];
  for (let index = 0; index < count; index++) {
    const options = { temperature, seed: index, ignoreEos: true, maxTokens: perDraft, speculative: 'self' } as const;
    const { tokens, speculation } = await session.generate(text, options).result();
    text.push(...tokens);
    drafted += speculation?.numDraftedTokens ?? 0;
    accepted += speculation?.numAcceptedTokens ?? 0;
  }
  if (drafted === 0) throw new Error('no draft was made');
  return { drafted, accepted };
}
