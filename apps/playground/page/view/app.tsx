/** The frame of the page: conversations at the side, the current one, and the dialogs. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { ChatBackend } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import type { SettingsStore } from '../state/settings.js';
import type { Tools } from '../state/tools/tools.js';
import { CompareDialog } from './compare-dialog.js';
import { Composer } from './composer.js';
import { Conversations } from './conversations.js';
import { KeyForm } from './key-form.js';
import { LiveView } from './live-view.js';
import { LoaderDialog } from './loader-dialog.js';
import { MessageList } from './message-list.js';
import { SettingsDialog } from './settings-dialog.js';
import { QuestionDialog } from './tools/question-dialog.js';
import { ToolsDialog } from './tools/tools-dialog.js';
import { Toolbar } from './toolbar.js';

export interface AppProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
  readonly backend: ChatBackend;
  readonly tools: Tools;
}

/** Parts of the page that are open. */
export type Panel = 'none' | 'conversations' | 'settings' | 'loader' | 'compare' | 'tools';

export function App({ chat, settings, backend, tools }: AppProps): JSX.Element {
  const panel = useSignal<Panel>('none');
  useShortcuts(chat);
  const { showsMetrics } = settings.settings.value;
  const close = (): void => {
    panel.value = 'none';
  };
  return (
    <div class={showsMetrics ? 'page with-live' : 'page'}>
      <a class="skip" href="#prompt">
        Skip to the prompt
      </a>
      <Conversations chat={chat} isOpen={panel.value === 'conversations'} onClose={close} />
      <main>
        <Toolbar chat={chat} settings={settings} panel={panel} canLoad={backend.loader !== undefined} />
        <MessageList chat={chat} settings={settings} />
        <footer>
          {chat.needsKey.value && <KeyForm chat={chat} settings={settings} />}
          {[chat.storageProblem.value, settings.problem.value, chat.problem.value].filter(Boolean).map((text) => (
            <p key={text} class="problem" role="alert">
              {text}
            </p>
          ))}
          <Notices tools={tools} />
          <Composer chat={chat} />
        </footer>
      </main>
      {showsMetrics && <LiveView chat={chat} backend={backend} />}
      <OpenDialog {...{ chat, settings, backend, tools }} panel={panel.value} onClose={close} />
      <QuestionDialog chat={chat} tools={tools} />
      <div class="hidden" role="status" aria-live="polite">
        {chat.announcement.value}
      </div>
    </div>
  );
}

/** What happened with tools: the result of each call is in its answer. */
function Notices({ tools }: Pick<AppProps, 'tools'>): JSX.Element | null {
  const texts = tools.notices.value;
  if (texts.length === 0) return null;
  return (
    <ul class="notices" aria-label="What happened with tools" tabIndex={0}>
      {texts.map((text, index) => (
        <li key={index}>{text}</li>
      ))}
    </ul>
  );
}

interface OpenDialogProps extends AppProps {
  readonly panel: Panel;
  readonly onClose: () => void;
}

function OpenDialog({ chat, settings, backend, tools, panel, onClose }: OpenDialogProps): JSX.Element | null {
  const { loader } = backend;
  if (panel === 'settings') return <SettingsDialog settings={settings} onClose={onClose} />;
  if (panel === 'tools') return <ToolsDialog tools={tools} settings={settings} onClose={onClose} />;
  if (panel === 'compare') {
    return <CompareDialog chat={chat} settings={settings} backend={backend} onClose={onClose} />;
  }
  if (panel !== 'loader' || loader === undefined) return null;
  return <LoaderDialog chat={chat} settings={settings} loader={loader} onClose={onClose} />;
}

/** Escape stops an answer; Ctrl+Shift+O starts a conversation. */
function useShortcuts(chat: Chat): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      // in a dialog, Escape closes it
      const isInDialog = document.querySelector('dialog[open]') !== null;
      if (event.key === 'Escape' && chat.isAnswering.value && !isInDialog) void chat.stop();
      if (event.key.toLowerCase() !== 'o' || !event.shiftKey || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void chat.startNew().then(() => document.querySelector<HTMLElement>('#prompt')?.focus());
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [chat]);
}
