/** One message with what can be done with it. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import type { Chat } from '../state/chat.js';
import type { Attachment, Message } from '../state/messages.js';
import type { SettingsStore } from '../state/settings.js';
import { Answer } from './answer-view.js';
import { AttachmentList } from './attachments.js';
import { CallList } from './tools/call-list.js';

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
  const { role, content, attachments = [], calls = [], model } = message.value;
  const isUser = role === 'user';
  return (
    <article class={`message ${role}`} aria-label={isUser ? 'Your message' : `Answer of ${model ?? 'the model'}`}>
      {!isEditing.value && <AttachmentList attachments={attachments} />}
      {isUser && isEditing.value && (
        <Editor
          text={content}
          attachments={attachments}
          onDone={() => (isEditing.value = false)}
          onSave={(text, kept) => chat.edit(position, text, kept)}
        />
      )}
      {isUser && !isEditing.value && <p class="said">{content}</p>}
      {!isUser && <Answer message={message.value} showsTokens={settings.settings.value.showsTokens} />}
      <CallList calls={calls} isRunning={isLast && chat.isAnswering.value} />
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
  readonly attachments: readonly Attachment[];
  readonly onDone: () => void;
  readonly onSave: (text: string, attachments: readonly Attachment[]) => Promise<void>;
}

function Editor({ text, attachments, onDone, onSave }: EditorProps): JSX.Element {
  const edited = useSignal(text);
  const kept = useSignal(attachments);
  const remove = (index: number): void => {
    kept.value = kept.value.filter((_, other) => other !== index);
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    onDone();
    void onSave(edited.value, kept.value);
  };
  return (
    <form onSubmit={onSubmit}>
      <AttachmentList attachments={kept.value} onRemove={remove} />
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
