/** Where the user writes. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX, TargetedEvent } from 'preact';
import { errorText } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import type { Attachment } from '../state/messages.js';
import { AttachmentList } from './attachments.js';

export function Composer({ chat }: { readonly chat: Chat }): JSX.Element {
  const text = useSignal('');
  const files = useAttachments(chat);
  const isAnswering = chat.isAnswering.value;
  const model = chat.model();
  const send = (): void => {
    if (isAnswering || model === undefined || text.value.trim() === '') return;
    const written = text.value;
    text.value = '';
    void chat.send(written, files.takeAll());
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // Enter also ends the input of composed characters
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form class="composer" onSubmit={onSubmit} onDragOver={files.onDragOver} onDrop={files.onDrop}>
      <Attached files={files} />
      <textarea
        id="prompt"
        rows={2}
        aria-label="Prompt"
        placeholder={model === undefined ? 'No model is loaded' : 'Ask something (Shift+Enter for a new line)'}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={files.onPaste}
      />
      <AttachButton chat={chat} files={files} />
      {isAnswering ? (
        <button type="button" class="secondary" onClick={() => void chat.stop()}>
          Stop
        </button>
      ) : (
        <button type="submit" disabled={model === undefined || text.value.trim() === ''}>
          Send
        </button>
      )}
    </form>
  );
}

/** The files of the next message. */
interface Attachments {
  readonly attachments: Signal<readonly Attachment[]>;
  /** Why files were refused. */
  readonly problem: Signal<string>;
  readonly attach: (files: readonly File[]) => void;
  readonly onPaste: (event: ClipboardEvent) => void;
  readonly onDragOver: (event: DragEvent) => void;
  readonly onDrop: (event: DragEvent) => void;
  /** They belong to a message from now on. */
  readonly takeAll: () => readonly Attachment[];
}

function useAttachments(chat: Chat): Attachments {
  const attachments = useSignal<readonly Attachment[]>([]);
  const problem = useSignal('');
  const attachAll = async (files: readonly File[]): Promise<void> => {
    const refusals: string[] = [];
    problem.value = '';
    for (const file of files) {
      try {
        const attachment = await chat.attach(file, attachments.value);
        attachments.value = [...attachments.value, attachment];
      } catch (error) {
        refusals.push(errorText(error));
      }
    }
    problem.value = refusals.join('; ');
  };
  /** Text is pasted and dropped as always. */
  const take = (event: Event, data: DataTransfer | null): void => {
    const files = [...(data?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    if (chat.model() !== undefined) void attachAll(files);
  };
  return {
    attachments,
    problem,
    attach: (files) => void attachAll(files),
    onPaste: (event) => take(event, event.clipboardData),
    onDragOver: (event) => {
      if (event.dataTransfer?.types.includes('Files') === true) event.preventDefault();
    },
    onDrop: (event) => take(event, event.dataTransfer),
    takeAll: () => {
      const taken = attachments.value;
      attachments.value = [];
      problem.value = '';
      return taken;
    },
  };
}

/** The files of the next message, and why others are not among them. */
function Attached({ files: { attachments, problem } }: { readonly files: Attachments }): JSX.Element {
  const remove = (index: number): void => {
    attachments.value = attachments.value.filter((_, other) => other !== index);
  };
  return (
    <div class="attached">
      <AttachmentList attachments={attachments.value} onRemove={remove} />
      {problem.value !== '' && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
    </div>
  );
}

interface AttachButtonProps {
  readonly chat: Chat;
  readonly files: Attachments;
}

function AttachButton({ chat, files }: AttachButtonProps): JSX.Element {
  const model = chat.model();
  const onChange = ({ currentTarget: input }: TargetedEvent<HTMLInputElement>): void => {
    const chosen = [...(input.files ?? [])];
    // the same file may be chosen again
    input.value = '';
    files.attach(chosen);
  };
  return (
    <label class="attach">
      <span class="hidden">{model?.takesImages === false ? 'Attach text files' : 'Attach text files or images'}</span>
      <span aria-hidden="true">📎</span>
      <input type="file" multiple disabled={model === undefined} onChange={onChange} />
    </label>
  );
}
