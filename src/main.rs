fn main() -> std::process::ExitCode {
    feeddedup::cli::main(std::env::args_os())
}
