/** What a model wrote: reasoning, text or tokens, and what is known about it. */
import type { JSX } from 'preact';
import type { Message } from '../state/messages.js';
import { Markdown } from '../text/markdown.js';
import { TokenView } from './token-view.js';

interface AnswerProps {
  readonly message: Message;
  readonly showsTokens: boolean;
}

export function Answer({ message, showsTokens }: AnswerProps): JSX.Element {
  const { content, reasoning, state, tokens, error } = message;
  const isOpen = state === 'streaming';
  return (
    <>
      {reasoning !== '' && (
        <details>
          <summary>Reasoning</summary>
          <Markdown text={reasoning} isOpen={isOpen} />
        </details>
      )}
      {showsTokens && tokens !== undefined ? (
        <TokenView tokens={tokens} />
      ) : (
        <Markdown text={content} isOpen={isOpen} />
      )}
      {isOpen && content === '' && <progress aria-label="The model reads the prompt" />}
      {state === 'failed' && <p class="problem">{error}</p>}
      <Facts message={message} />
    </>
  );
}

const notes: Readonly<Partial<Record<Message['state'], string>>> = {
  stopped: 'stopped',
  cut: 'cut off at the token limit',
};

function Facts({ message: { state, usage, durationMs = 0 } }: { readonly message: Message }): JSX.Element | null {
  const facts: string[] = [];
  if (usage !== undefined) {
    facts.push(`${usage.promptTokens} prompt tokens, ${usage.cachedTokens} of them cached`);
    facts.push(`${usage.answerTokens} answer tokens`);
    const perSecond = (1000 * (usage.answerTokens - 1)) / durationMs;
    if (durationMs > 0 && usage.answerTokens > 1) facts.push(`${perSecond.toFixed(1)} tokens/s`);
  }
  const note = notes[state];
  if (note !== undefined) facts.push(note);
  return facts.length === 0 ? null : <p class="facts">{facts.join(' · ')}</p>;
}
