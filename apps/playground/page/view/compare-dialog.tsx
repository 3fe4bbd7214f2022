/** Two models side by side on the same prompt, such as one model dense and with an attention policy. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { errorText, type ChatBackend, type ModelChoice } from '../backend/contract.js';
import { AnswerBuilder } from '../state/answer.js';
import type { Chat } from '../state/chat.js';
import { userMessage, type Message } from '../state/messages.js';
import { promptOf } from '../state/prompt.js';
import type { SettingsStore } from '../state/settings.js';
import { Answer } from './answer-view.js';
import { Dialog } from './dialog.js';

interface CompareDialogProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
  readonly backend: ChatBackend;
  readonly onClose: () => void;
}

/** A column: a model and its answer. */
interface Side {
  readonly model: Signal<string>;
  readonly answer: Signal<Message | undefined>;
}

export function CompareDialog({ chat, settings, backend, onClose }: CompareDialogProps): JSX.Element {
  const models = chat.models.value.filter(({ canChat }) => canChat);
  const [first, second = first] = models;
  const sides: readonly Side[] = [
    { model: useSignal(first?.id ?? ''), answer: useSignal(undefined) },
    { model: useSignal(second?.id ?? ''), answer: useSignal(undefined) },
  ];
  const prompt = useSignal('');
  const controller = useRef<AbortController | undefined>(undefined);
  const isRunning = useSignal(false);
  useEffect(() => () => controller.current?.abort(), []);
  const onSubmit = async (event: Event): Promise<void> => {
    event.preventDefault();
    controller.current = new AbortController();
    isRunning.value = true;
    // one after the other, so that neither slows the other down
    for (const side of sides) await compareOne(side, prompt.value, settings, backend, controller.current.signal);
    isRunning.value = false;
  };
  return (
    <Dialog title="Compare two models" onClose={onClose}>
      {models.length < 2 && backend.loader !== undefined && (
        <p>Load a second model, for example the same one with an attention policy.</p>
      )}
      <form onSubmit={(event) => void onSubmit(event)}>
        <textarea
          aria-label="Prompt for both"
          rows={2}
          value={prompt.value}
          onInput={(event) => (prompt.value = event.currentTarget.value)}
        />
        {isRunning.value ? (
          <button type="button" class="secondary" onClick={() => controller.current?.abort()}>
            Stop both
          </button>
        ) : (
          <button type="submit" disabled={prompt.value.trim() === '' || models.length === 0}>
            Ask both
          </button>
        )}
      </form>
      <div class="sides">
        {sides.map((side, index) => (
          <Column key={index} side={side} name={index === 0 ? 'Left model' : 'Right model'} models={models} />
        ))}
      </div>
    </Dialog>
  );
}

async function compareOne(
  { model, answer }: Side,
  prompt: string,
  { settings }: SettingsStore,
  backend: ChatBackend,
  signal: AbortSignal,
): Promise<void> {
  const { sampling, systemPrompt } = settings.value;
  const builder = new AnswerBuilder(model.value, () => performance.now());
  const messages = promptOf(systemPrompt, [userMessage(prompt)]);
  try {
    for await (const event of backend.chat({ model: model.value, messages, sampling }, signal)) {
      builder.push(event);
      answer.value = builder.message('streaming');
    }
    answer.value = builder.message();
  } catch (error) {
    if (signal.aborted) answer.value = builder.message('stopped');
    else answer.value = builder.message('failed', errorText(error));
  }
}

interface ColumnProps {
  readonly side: Side;
  readonly name: string;
  readonly models: readonly ModelChoice[];
}

function Column({ side: { model, answer }, name, models }: ColumnProps): JSX.Element {
  return (
    <section aria-label={name}>
      <select aria-label={name} value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
        {models.map(({ id }) => (
          <option key={id} value={id}>
            {id}
          </option>
        ))}
      </select>
      {answer.value && <Answer message={answer.value} showsTokens={false} />}
    </section>
  );
}
