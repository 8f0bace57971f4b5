// A step for a shared library (vars/memgate.groovy):
//   memgate('ctest --test-dir build --output-on-failure')
// The page needs its own script. In HTML Publisher, Jenkins' default content policy forbids all scripts, so the page is also archived.
def call(String command = '') {
    try {
        sh "memgate run ${command ? '-- ' + command : ''}"
    } finally {
        // An error here does not hide the failure of the tests.
        sh script: 'memgate report --all memgate-reports', returnStatus: true
        junit testResults: 'memgate-reports/junit.xml', allowEmptyResults: true
        archiveArtifacts artifacts: '.memgate/latest/**, memgate-reports/**', allowEmptyArchive: true
    }
}
