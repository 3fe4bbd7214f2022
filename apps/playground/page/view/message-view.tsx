/** One message with what can be done with it. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import type { Chat } from '../state/chat.js';
import type { Message } from '../state/messages.js';
import type { SettingsStore } from '../state/settings.js';
import { Markdown } from '../text/markdown.js';
import { TokenView } from './token-view.js';

interface MessageViewProps {
  readonly message: Signal<Message>;
  readonly position: number;
  readonly isLast: boolean;
  readonly chat: Chat;
  readonly settings: SettingsStore;
}

export const MessageView: (props: MessageViewProps) => JSX.Element = memo(DrawnMessage) as typeof DrawnMessage;

function DrawnMessage({ message, position, isLast, chat, settings }: MessageViewProps): JSX.Element {
  const isEditing = useSignal(false);
  const { role, content, model } = message.value;
  const isUser = role === 'user';
  return (
    <article class={`message ${role}`} aria-label={isUser ? 'Your message' : `Answer of ${model ?? 'the model'}`}>
      {isUser && isEditing.value && (
        <Editor text={content} onDone={() => (isEditing.value = false)} onSave={(text) => chat.edit(position, text)} />
      )}
      {isUser && !isEditing.value && <p class="said">{content}</p>}
      {!isUser && <Answer message={message.value} showsTokens={settings.settings.value.showsTokens} />}
      {!isEditing.value && (
        <Actions
          content={content}
          onEdit={isUser ? () => (isEditing.value = true) : undefined}
          onRegenerate={isLast && !chat.isAnswering.value ? () => void chat.regenerate() : undefined}
        />
      )}
    </article>
  );
}

interface AnswerProps {
  readonly message: Message;
  readonly showsTokens: boolean;
}

function Answer({ message, showsTokens }: AnswerProps): JSX.Element {
  const { content, reasoning, state, tokens, error } = message;
  const isOpen = state === 'streaming';
  return (
    <>
      {reasoning !== '' && (
        <details class="reasoning">
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
  cut: 'cut by the limit of tokens',
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

interface ActionsProps {
  readonly content: string;
  readonly onEdit: (() => void) | undefined;
  readonly onRegenerate: (() => void) | undefined;
}

function Actions({ content, onEdit, onRegenerate }: ActionsProps): JSX.Element {
  return (
    <div class="actions">
      <button type="button" class="quiet" onClick={() => void navigator.clipboard.writeText(content)}>
        Copy
      </button>
      {onEdit && (
        <button type="button" class="quiet" onClick={onEdit}>
          Edit
        </button>
      )}
      {onRegenerate && (
        <button type="button" class="quiet" onClick={onRegenerate}>
          Regenerate
        </button>
      )}
    </div>
  );
}

interface EditorProps {
  readonly text: string;
  readonly onDone: () => void;
  readonly onSave: (text: string) => Promise<void>;
}

function Editor({ text, onDone, onSave }: EditorProps): JSX.Element {
  const edited = useSignal(text);
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    onDone();
    void onSave(edited.value);
  };
  return (
    <form onSubmit={onSubmit}>
      <textarea
        aria-label="Edited message"
        rows={3}
        value={edited.value}
        onInput={(event) => (edited.value = event.currentTarget.value)}
      />
      <div class="actions">
        <button type="submit">Send again</button>
        <button type="button" class="secondary" onClick={onDone}>
          Cancel
        </button>
      </div>
    </form>
  );
}
